/** Child process of `peer`: one measurement of llama.cpp. Argument: a LlamaRequest as JSON. */

import { readFileSync } from 'node:fs';
import { variedIds } from '../subject.ts';
import { OLMOE_SHAPE } from '../synth.ts';
import { type AddonContext, loadAddon } from './addon.ts';
import { type ChildResult, contextTokens, type LlamaRequest, SEED, WARM_SEED } from './work.ts';

const VOCABULARY = OLMOE_SHAPE.vocabSize;
/** Levels of the addon: with 5 it tells what lies in which buffer, with 2 only errors. */
const TELL = 5;
const QUIET = 2;

async function measure(request: LlamaRequest): Promise<ChildResult> {
  const { work, binaries, libraries, loading, threads, flashAttention } = request;
  const addon = loadAddon(binaries);
  const log: string[] = [];
  addon.setLogger((_level, message) => log.push(message));
  addon.setLoggerLogLevel(TELL);
  addon.loadBackends(libraries);
  await addon.init();
  const model = new addon.AddonModel(request.model, {
    gpuLayers: 0,
    useMmap: loading === 'mmap',
    useDirectIo: loading === 'direct',
  });
  if (!(await model.init())) throw new Error(`llama.cpp could not load ${request.model}: ${log.slice(-5).join('')}`);
  const batchSize = Math.max(work.warmTokens, work.promptTokens);
  const context = new addon.AddonContext(model, {
    contextSize: contextTokens(work),
    batchSize,
    sequences: 1,
    threads,
    flashAttention,
  });
  if (!(await context.init())) throw new Error(`llama.cpp made no context: ${log.slice(-5).join('')}`);
  const buffers = log.join('').match(/\S+ +model buffer size = .*/g) ?? [];
  addon.setLoggerLogLevel(QUIET);

  const { seconds, row } = await timed(context, request);
  const sampler = new addon.AddonSampler(model);
  sampler.applyConfig({ temperature: 0 });
  const top = await context.sampleToken(row, sampler);
  const { maxRSS, majorPageFault } = process.resourceUsage();
  return {
    tokensPerSecond: (work.decodeTokens || work.promptTokens) / seconds,
    top,
    maxRssBytes: maxRSS * 1024,
    majorFaults: majorPageFault,
    about: [addon.systemInfo().trim(), loadedLibrary(), ...buffers.map(line => line.replaceAll(/ +/g, ' ').trim())],
    bytesRead: null,
  };
}

async function timed(context: AddonContext, { work }: LlamaRequest): Promise<{ seconds: number; row: number }> {
  const feed = async (ids: readonly number[], position: number) => {
    context.initBatch(ids.length);
    const rows = context.addToBatch(0, position, Uint32Array.from(ids), Uint32Array.of(ids.length - 1));
    await context.decodeBatch();
    return rows[0];
  };
  const warm = variedIds(work.warmTokens + work.warmSingles, VOCABULARY, WARM_SEED);
  await feed(warm.slice(0, work.warmTokens), 0);
  for (let i = work.warmTokens; i < warm.length; i++) await feed([warm[i]], i);
  context.removeTokenCellsFromSequence(0, 0, -1);

  const ids = variedIds(work.promptTokens + work.decodeTokens, VOCABULARY, SEED);
  const prompt = ids.slice(0, work.promptTokens);
  if (work.decodeTokens > 0) await feed(prompt, 0);
  const begun = performance.now();
  let row = work.decodeTokens === 0 ? await feed(prompt, 0) : 0;
  for (let i = work.promptTokens; i < ids.length; i++) row = await feed([ids[i]], i);
  return { seconds: (performance.now() - begun) / 1000, row };
}

/** Which of the CPU libraries llama.cpp chose. */
function loadedLibrary(): string {
  return /libggml-cpu[\w-]*\.\w+/.exec(readFileSync('/proc/self/maps', 'utf8'))?.[0] ?? 'no CPU library is mapped';
}

const result = await measure(JSON.parse(process.argv[2]));
// llama.cpp's own tear-down is not of interest, and its logger would keep the process alive
process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
