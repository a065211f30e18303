/**
 * `peer`: this engine beside llama.cpp (through node-llama-cpp) on the same random weights. llama.cpp counts at its best
 * threads and attention, found by trying; then pairs of runs alternate, each in a process of its own.
 */

import { rmSync } from 'node:fs';
import { formatBytes } from '../../src/common/units.ts';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import { machineLine } from '../subject.ts';
import { findBinaries, LLAMA_VERSION, librariesWithoutRepacking } from './addon.ts';
import { OutOfMemory, runLlama, runOurs } from './children.ts';
import { dropFromCache, limitMemory, type MemoryLimit, NoLimit } from './memory-limit.ts';
import { bytesPerToken, type PeerModel, peerModel, SHAPES, sizesOnDisk } from './models.ts';
import { type PeerOptions, readOptions } from './options.ts';
import { plannedBytes } from './our-options.ts';
import { ReadAhead } from './read-ahead.ts';
import { bestOf, configWords, type Pair, type Section, sectionLines, summarise, type Trial } from './report.ts';
import { type ChildResult, type LlamaConfig, type Measure, type OurRequest, WORK, type Work } from './work.ts';

/** Share of the experts that have a slot in the limited measurement. */
const LIMITED_SHARE = 0.25;
/** A half is enough to choose by. The faster of the rounds counts: what else the machine does can only slow one down. */
const TRIAL_PART = 2;
const TRIAL_ROUNDS = 2;
const GROUP_NAME = `coli-peer-${process.pid}`;

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args);
  const binaries = findBinaries();
  const model = peerModel(options.shape, say);
  const plainLibraries = librariesWithoutRepacking(binaries);
  try {
    const sections: Section[] = [];
    for (const measure of options.measures) {
      sections.push(await new Comparison(options, model, { binaries, plainLibraries }, measure).run());
    }
    report(options, model, sections);
  } finally {
    rmSync(plainLibraries, { recursive: true, force: true });
  }
}

type Compared = Pick<Section, 'trials' | 'ours' | 'pairs' | 'about' | 'missing'>;

interface Folders {
  readonly binaries: string;
  readonly plainLibraries: string;
}

class Comparison {
  readonly #options: PeerOptions;
  readonly #model: PeerModel;
  readonly #folders: Folders;
  readonly #measure: Measure;
  #limit: MemoryLimit | undefined;

  constructor(options: PeerOptions, model: PeerModel, folders: Folders, measure: Measure) {
    this.#options = options;
    this.#model = model;
    this.#folders = folders;
    this.#measure = measure;
  }

  async run(): Promise<Section> {
    const measure = this.#measure;
    const { threads } = this.#options;
    const about = { ours: [], llama: [] };
    const empty = { measure, threads, limitBytes: null, notes: [], trials: [], ours: [], pairs: [], about };
    if (measure !== 'limited') return { ...empty, ...(await this.#compare()) };
    const limitBytes = plannedBytes(this.#ourRequest(threads, WORK.limited));
    try {
      return { ...empty, limitBytes, ...(await this.#compareWithin(limitBytes)) };
    } catch (error) {
      if (!(error instanceof NoLimit)) throw error;
      return { ...empty, limitBytes, missing: error.message };
    }
  }

  /** Throws NoLimit where the memory of a process cannot be bounded, or a bound would say nothing. */
  async #compareWithin(limitBytes: number): Promise<Compared & Pick<Section, 'notes'>> {
    const { gguf: bytes } = sizesOnDisk(this.#model);
    if (bytes < limitBytes) throw new NoLimit(`the whole GGUF (${formatBytes(bytes)}) fits into what our plan takes`);
    this.#limit = limitMemory(GROUP_NAME, limitBytes);
    const readAhead = new ReadAhead(this.#model.gguf);
    try {
      if (this.#options.readAheadKb !== null) readAhead.set(this.#options.readAheadKb);
      const notes = [`the disk reads ${readAhead.kb} kB ahead of a page fault`];
      return { notes, ...(await this.#compare()) };
    } finally {
      readAhead.restore();
      this.#limit.remove();
    }
  }

  async #compare(): Promise<Compared> {
    const work = WORK[this.#measure];
    const trialWork = { ...work, decodeTokens: work.decodeTokens / TRIAL_PART };
    const trials: Trial[] = [];
    for (const config of candidates(this.#measure, this.#options.threadCounts)) {
      trials.push(await this.#try(config, trialWork));
    }
    const ours: { threads: number; tokensPerSecond: number }[] = [];
    for (const threads of this.#options.threadCounts) {
      ours.push({ threads, tokensPerSecond: await this.#fastest(() => this.#ours(threads, trialWork)) });
    }
    const best = bestOf(trials);
    if (!best) return { trials, ours, pairs: [], about: { ours: [], llama: [] }, missing: 'llama.cpp ran in no way' };
    return { trials, ours, missing: null, ...(await this.#pairs(best.config, work)) };
  }

  async #try(config: LlamaConfig, work: Work): Promise<Trial> {
    try {
      const tokensPerSecond = await this.#fastest(() => this.#llama(config, work));
      return { config, tokensPerSecond, why: null };
    } catch (error) {
      if (!(error instanceof OutOfMemory)) throw error;
      say(error.message);
      return { config, tokensPerSecond: null, why: error.message };
    }
  }

  async #fastest(run: () => Promise<ChildResult>): Promise<number> {
    let fastest = 0;
    const rounds = this.#measure === 'limited' ? 1 : TRIAL_ROUNDS;
    for (let round = 0; round < rounds; round++) fastest = Math.max(fastest, (await run()).tokensPerSecond);
    return fastest;
  }

  /** Which engine begins changes from pair to pair. */
  async #pairs(config: LlamaConfig, work: Work): Promise<Pick<Section, 'pairs' | 'about'>> {
    const pairs: Pair[] = [];
    let about: Section['about'] = { ours: [], llama: [] };
    for (let i = 0; i < this.#options.pairs; i++) {
      const early = i % 2 === 0 ? await this.#ours(this.#options.threads, work) : null;
      const llama = await this.#llama(config, work);
      const ours = early ?? (await this.#ours(this.#options.threads, work));
      if (this.#measure !== 'limited' && ours.bytesRead! > 0) throw new Error('experts were read while time was taken');
      pairs.push({ ours: ours.tokensPerSecond, llama: llama.tokensPerSecond, sameTop: ours.top === llama.top });
      about = { ours: aboutLines(ours), llama: aboutLines(llama) };
    }
    return { pairs, about };
  }

  #ours(threads: number, work: Work): Promise<ChildResult> {
    const files = openCheckpoint(this.#model.container).files.map(file => file.path);
    return this.#told(`ours, ${threads} threads`, files, limit => runOurs(this.#ourRequest(threads, work), limit));
  }

  #llama(config: LlamaConfig, work: Work): Promise<ChildResult> {
    const { binaries, plainLibraries } = this.#folders;
    const libraries = config.repack ? binaries : plainLibraries;
    const request = { ...config, model: this.#model.gguf, binaries, libraries, work };
    return this.#told(`llama.cpp, ${configWords(config)}`, [request.model], limit => runLlama(request, limit));
  }

  async #told(
    what: string,
    files: readonly string[],
    run: (limit: MemoryLimit | undefined) => Promise<ChildResult>,
  ): Promise<ChildResult> {
    say(`${this.#measure}: ${what} ...`);
    if (this.#limit) dropFromCache(files);
    const result = await run(this.#limit);
    say(`  ${result.tokensPerSecond.toFixed(2)} tok/s`);
    return result;
  }

  #ourRequest(threads: number, work: Work): OurRequest {
    const share = this.#measure === 'limited' ? LIMITED_SHARE : 1;
    return { model: this.#model.container, threads, kernels: this.#options.kernels, share, work };
  }
}

/**
 * In memory: every thread count, with and without flash attention, repacked. Under a limit: weights as they lie in the file
 * for every thread count, then what copies all of them. Mapped and repacked is left out: the copy alone is larger than the
 * limit, and the kernel then reclaims the mapping for ever instead of ending the process.
 */
function candidates(measure: Measure, threadCounts: readonly number[]): LlamaConfig[] {
  if (measure !== 'limited') {
    return threadCounts.flatMap(threads =>
      [true, false].map(flashAttention => ({ threads, flashAttention, loading: 'mmap' as const, repack: true })),
    );
  }
  const plain = { flashAttention: true, repack: false } as const;
  const threads = threadCounts.at(-1)!;
  return [
    ...threadCounts.map(count => ({ ...plain, threads: count, loading: 'mmap' as const })),
    { ...plain, threads, loading: 'read' },
    { ...plain, threads, loading: 'direct' },
  ];
}

function aboutLines({ about, maxRssBytes, majorFaults, bytesRead }: ChildResult): string[] {
  const read = bytesRead === null ? '' : `, ${formatBytes(bytesRead)} of experts read while time was taken`;
  return [...about, `highest resident set ${formatBytes(maxRssBytes)}, ${majorFaults} major page faults${read}`];
}

function report(options: PeerOptions, model: PeerModel, sections: readonly Section[]): void {
  const shape = SHAPES[options.shape];
  const sizes = sizesOnDisk(model);
  const q4g64 = { bits: 4.25, bytesPerToken: bytesPerToken(shape, 4.25), bytesOnDisk: sizes.container };
  const q4_0 = { bits: 4.5, bytesPerToken: bytesPerToken(shape, 4.5), bytesOnDisk: sizes.gguf };
  if (options.json) {
    const told = sections.map(s => ({ ...s, summary: s.pairs.length > 0 ? summarise(s.pairs) : null }));
    const { shape: name, threads, pairs } = options;
    const peer = `node-llama-cpp ${LLAMA_VERSION}`;
    console.log(
      JSON.stringify({ machine: machineLine(), peer, shape: name, threads, pairs, q4g64, q4_0, sections: told }),
    );
    return;
  }
  const words = (f: typeof q4_0) =>
    `${f.bits} bits per weight, ${formatBytes(f.bytesPerToken)} per token, ${formatBytes(f.bytesOnDisk)} on disk`;
  console.log(`${machineLine()}; llama.cpp of node-llama-cpp ${LLAMA_VERSION}; shape ${options.shape}`);
  console.log(`ours q4g64: ${words(q4g64)}`);
  console.log(`GGUF Q4_0: ${words(q4_0)}; equal weights`);
  for (const section of sections) console.log(sectionLines(section).join('\n'));
}

function say(line: string): void {
  console.error(line);
}
