/** Experts are read when a router asks for them, once, and not a byte more. */

import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type SynthShape, writeSynth } from '../../bench/synth.ts';
import type { EngineOptions, GenerateStats } from '../../src/engine/api.ts';
import { generate } from '../../src/engine/generate.ts';
import type { Runtime } from '../../src/engine/runtime.ts';
import type { Session } from '../../src/engine/session.ts';
import { Tokenizer } from '../../src/tokenizer/tokenizer.ts';
import { diskWithRoom } from '../support/memory.ts';
import { withRuntime } from '../support/packs.ts';

const SHAPE: SynthShape = {
  layers: 4,
  experts: 64,
  topK: 4,
  hiddenSize: 256,
  expertWidth: 128,
  heads: 4,
  vocabSize: 512,
};
/** gate, up and down in q4 tiles: 52,224 bytes, padded to pages. */
const RECORD_BYTES = 53_248;
const ALL = SHAPE.layers * SHAPE.experts;
/** A pass of 47 tokens or more is expected to touch 95 % of the experts, and the next layer is read ahead. */
const SHORT = 20;

const disk = diskWithRoom(500e6);
const folder = mkdtempSync(join('directory' in disk ? disk.directory : '.', 'coli-demand-'));
const model = join(folder, 'small');

beforeAll(() => {
  writeSynth(model, SHAPE);
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

const promptOf = (tokens: number, start = 5) => Array.from({ length: tokens }, (_, i) => 5 + ((start + i * 37) % 500));

function open<T>(options: Omit<EngineOptions, 'model'>, use: (runtime: Runtime, session: Session) => T): Promise<T> {
  return withRuntime({ model, context: 256, threads: 1, prefetch: 'off', ...options }, use);
}

/** Feeds a prompt and returns how many distinct experts each layer of each chunk routed to. */
function feed({ compute, store, info }: Runtime, session: Session, ids: readonly number[]): number[] {
  const distinct: number[] = [];
  session.feedAll(ids, () => {}, {
    router: (_layer, chosen, _weights, n) => {
      distinct.push(new Set(compute.arenas.ints(chosen).subarray(0, n * info.topK)).size);
    },
  });
  store.settle();
  return distinct;
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0);

/** Bytes that this process has taken from files and pipes. */
function bytesTaken(): number {
  return Number(/^rchar: (\d+)$/m.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]);
}

/** Experts in memory now. */
function residents({ store }: Runtime): number {
  let count = 0;
  for (let layer = 0; layer < SHAPE.layers; layer++) {
    for (let expert = 0; expert < SHAPE.experts; expert++) if (store.isResident(layer, expert)) count++;
  }
  return count;
}

describe('bytes read', () => {
  test('none before the first token', async () => {
    await open({}, runtime => {
      expect(runtime.info.plan.slotBytes).toBe(RECORD_BYTES);
      expect(RECORD_BYTES % 4096).toBe(0);
      for (const [name, value] of Object.entries(runtime.store.counters)) expect(value, name).toBe(0);
      expect(residents(runtime)).toBe(0);
    });
  });

  test('a cold prompt reads what its routers chose, and the system saw exactly those bytes', async () => {
    await open({ expertSlots: ALL }, (runtime, session) => {
      const before = bytesTaken();
      const distinct = sum(feed(runtime, session, promptOf(SHORT)));
      const taken = bytesTaken() - before;
      const { requests, hits, misses, prefetched, bytesRead } = runtime.store.counters;
      expect(distinct).toBeGreaterThan(SHAPE.layers * SHAPE.topK);
      expect({ requests, hits, misses, prefetched }).toEqual({
        requests: distinct,
        hits: 0,
        misses: distinct,
        prefetched: 0,
      });
      expect(bytesRead).toBe(distinct * RECORD_BYTES);
      // beside them only /proc/self/io itself
      expect(taken - bytesRead).toBeGreaterThanOrEqual(0);
      expect(taken - bytesRead).toBeLessThan(RECORD_BYTES);
    });
  });

  test('what is in memory is not read again', async () => {
    await open({ expertSlots: ALL }, (runtime, session) => {
      feed(runtime, session, promptOf(SHORT));
      const { bytesRead, misses } = runtime.store.counters;
      session.truncate(0);
      feed(runtime, session, promptOf(SHORT));
      expect(runtime.store.counters).toMatchObject({ bytesRead, misses, hits: misses });
    });
  });

  test.each([SHAPE.topK, 40, ALL])('with %i slots the statistics of an answer add up', async expertSlots => {
    const tokenizer = Tokenizer.load(model);
    await open({ expertSlots }, (runtime, session) => {
      const facts = { tokenBytes: tokenizer.tokenBytes, vocabSize: tokenizer.vocabSize, endOfTurnIds: [] };
      const all: GenerateStats[] = [];
      for (const seed of [1, 2]) {
        generate(runtime, session, facts, promptOf(SHORT, seed), { maxTokens: 12, seed, ignoreEos: true }, event => {
          if (event.type === 'end') all.push(event.stats);
        });
      }
      expect(all).toHaveLength(2);
      for (const stats of all) {
        expect(stats.expert_prefetched).toBe(0);
        expect(stats.bytes_read).toBe((stats.expert_requests - stats.expert_hits) * RECORD_BYTES);
        expect(stats.bytes_read).toBeGreaterThan(0);
      }
    });
  });
});

describe('in prefill', () => {
  test('each distinct expert is read once per chunk', async () => {
    // 64 slots for the experts of four layers: most of what a chunk leaves is gone before the next chunk comes to it
    await open({ expertSlots: 64, chunk: 20 }, (runtime, session) => {
      const distinct = feed(runtime, session, promptOf(60));
      expect(distinct).toHaveLength(3 * SHAPE.layers);
      expect(sum(distinct.slice(0, SHAPE.layers)) - Math.max(...distinct)).toBeGreaterThan(64);
      const { requests, hits, misses, prefetched, bytesRead } = runtime.store.counters;
      expect({ requests, prefetched }).toEqual({ requests: sum(distinct), prefetched: 0 });
      expect(misses).toBe(requests - hits);
      expect(bytesRead).toBe(misses * RECORD_BYTES);
      // the slots hold no more from one chunk to the next, in two times
      expect(hits).toBeLessThanOrEqual(2 * 64);
    });
  });

  test('each distinct expert is read once per chunk also when they have to take turns', async () => {
    await open({ expertSlots: 5, chunk: 20 }, (runtime, session) => {
      const distinct = sum(feed(runtime, session, promptOf(40)));
      const { requests, hits, misses, bytesRead } = runtime.store.counters;
      expect(requests).toBe(distinct);
      expect(misses).toBe(distinct - hits);
      expect(bytesRead).toBe(misses * RECORD_BYTES);
    });
  });

  test('reading ahead reads nothing twice', async () => {
    await open({ expertSlots: ALL, chunk: 128, prefetch: 'on' }, (runtime, session) => {
      const distinct = sum(feed(runtime, session, promptOf(128)));
      const { requests, misses, prefetched, bytesRead } = runtime.store.counters;
      expect(requests).toBe(distinct);
      expect(prefetched).toBeGreaterThan(0);
      const reads = bytesRead / RECORD_BYTES;
      // nothing is ever evicted here, so what was read is what is in memory
      expect(reads).toBe(residents(runtime));
      expect(reads).toBeGreaterThanOrEqual(distinct);
      expect(reads).toBeLessThanOrEqual(misses + prefetched);
    });
  });
});

describe('the page cache', () => {
  const big = join(folder, 'big');
  const shards = () => readdirSync(big).filter(name => name.endsWith('.safetensors'));

  const run = (command: string, ...args: string[]) => spawnSync(command, args, { cwd: big, encoding: 'utf8' });

  /** Share of a file that is in the page cache; null when nothing can tell. */
  function residentShare(file: string): number | null {
    const { status, stdout } = run('fincore', '--bytes', '--noheadings', '--output', 'RES,SIZE', file);
    if (status !== 0) return null;
    const [resident, size] = stdout.trim().split(/\s+/).map(Number);
    return resident / size;
  }

  test('direct reads leave it alone', async context => {
    // shards of 33 MB: reading a header brings more than one page along
    writeSynth(big, { ...SHAPE, layers: 3, hiddenSize: 512, expertWidth: 640 });
    for (const shard of shards()) run('dd', `of=${shard}`, 'oflag=nocache', 'conv=notrunc,fdatasync', 'count=0');
    const before = shards().map(residentShare);
    if (before.some(share => share === null || share > 0.001)) {
      context.skip('fincore (util-linux) is missing, or files cannot be dropped from the page cache');
    }
    await withRuntime({ model: big, context: 256, threads: 1 }, (runtime, session) => {
      if (!runtime.info.directIo) context.skip('the file system refuses direct reads');
      feed(runtime, session, promptOf(100));
      expect(runtime.store.counters.bytesRead).toBeGreaterThan(50e6);
    });
    for (const shard of shards()) expect(residentShare(shard), shard).toBeLessThan(0.01);
    // and the measure does see ordinary reads
    const [shard] = shards();
    readFileSync(join(big, shard));
    expect(residentShare(shard)).toBeGreaterThan(0.9);
  });
});
