/** The promise: the same bits whatever the slots, lanes, chunks, kernels and memories. */

import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { EngineOptions, GenerateEvent } from '../../src/engine/api.ts';
import { generate } from '../../src/engine/generate.ts';
import { readReference } from '../../src/eval/reference.ts';
import { Tokenizer } from '../../src/tokenizer/tokenizer.ts';
import { PACKS, packDirectory, scoreWith, withRuntime } from '../support/packs.ts';

/** Small enough that weights, KV and slots of a pack spread over several memories. */
const SMALL_ARENA_BYTES = 5 << 18;
const ALL = 48; // 3 layers of 16 experts

const VARIANTS: { name: string; options: Omit<EngineOptions, 'model'>; arenaBytes?: number }[] = [
  { name: '25 % slots', options: { expertSlots: ALL / 4, prefetch: 'on' } },
  { name: '50 % slots, 2 lanes', options: { expertSlots: ALL / 2, threads: 2 } },
  { name: '25 % slots, no look-ahead', options: { expertSlots: ALL / 4, prefetch: 'off' } },
  { name: '60 % slots, chunk 1', options: { expertSlots: 29, chunk: 1, prefetch: 'on' } },
  { name: 'top-k slots, 4 lanes, chunk 7', options: { expertSlots: 4, threads: 4, chunk: 7 } },
  { name: 'chunk 1', options: { chunk: 1, threads: 2 } },
  { name: 'chunk 64, 1 reader', options: { chunk: 64, readers: 1 } },
  { name: 'reference kernels', options: { kernels: 'reference', threads: 2 } },
  { name: 'baseline kernels', options: { kernels: 'wasm-baseline', threads: 3, chunk: 64 } },
  { name: 'several memories', options: { expertSlots: 20, threads: 2, chunk: 64 }, arenaBytes: SMALL_ARENA_BYTES },
  {
    name: 'several memories, chunk 5',
    options: { expertSlots: 4, threads: 2, chunk: 5 },
    arenaBytes: SMALL_ARENA_BYTES,
  },
];

const digest = (values: Float32Array) => createHash('sha256').update(Buffer.from(values.buffer)).digest('hex');

describe.each(PACKS)('%s', pack => {
  const model = packDirectory(pack);
  const { inputIds } = readReference(model, 3);
  const base = { model, context: 256, threads: 1 };

  test.each(['int8', 'exact'] as const)('logits have the same bits in every variant (%s)', async activations => {
    const expected = await scoreWith({ ...base, activations }, { ids: inputIds, logits: true });
    for (const { name, options, arenaBytes } of VARIANTS) {
      const got = await scoreWith(
        { ...base, activations, ...options },
        { ids: inputIds, logits: true },
        { arenaBytes },
      );
      expect(digest(got.logits!), name).toBe(digest(expected.logits!));
    }
  });

  test('sampled tokens are the same in every variant', async () => {
    const tokenizer = Tokenizer.load(model);
    const run = (options: Omit<EngineOptions, 'model'>, arenaBytes?: number) =>
      withRuntime(
        { ...base, ...options },
        (runtime, session) => {
          const facts = { tokenBytes: tokenizer.tokenBytes, vocabSize: tokenizer.vocabSize, endOfTurnIds: [] };
          const request = { temperature: 0.9, topP: 0.95, seed: 7, maxTokens: 24, ignoreEos: true };
          const events: GenerateEvent[] = [];
          generate(runtime, session, facts, inputIds.slice(0, 40), request, event => events.push(event));
          const end = events.at(-1)!;
          if (end.type !== 'end') throw new Error('no end event');
          return end.tokenIds.join(' ');
        },
        { arenaBytes },
      );
    const expected = await run({});
    for (const { name, options, arenaBytes } of VARIANTS) expect(await run(options, arenaBytes), name).toBe(expected);
  });
});

test('the small memories of these tests really are several', async () => {
  const options = { model: packDirectory('olmoe'), context: 256, expertSlots: 20, chunk: 64 };
  const count = await withRuntime(options, runtime => runtime.compute.arenas.count, { arenaBytes: SMALL_ARENA_BYTES });
  expect(count).toBeGreaterThan(1);
});

test('going back and generating again gives the same tokens as a fresh session', async () => {
  const model = packDirectory('olmoe');
  const { inputIds } = readReference(model, 3);
  await withRuntime({ model, context: 256 }, (runtime, session) => {
    const logitsAfter = (ids: readonly number[]) => {
      session.truncate(session.commonPrefix(ids) === ids.length ? ids.length - 1 : session.commonPrefix(ids));
      session.feed(ids.slice(session.length));
      return digest(runtime.model.logits(ids.length - session.length + runtime.batch.rows - 1, 1).slice());
    };
    const edited = [...inputIds.slice(0, 20), 3, ...inputIds.slice(21, 50)];
    const first = logitsAfter(inputIds.slice(0, 60));
    const second = logitsAfter(edited);
    expect(second).not.toBe(first);
    expect(logitsAfter(inputIds.slice(0, 60))).toBe(first);
    session.truncate(0);
    expect(logitsAfter(edited)).toBe(second);
  });
});
