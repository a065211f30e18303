/** The promise: the same bits whatever the slots, lanes, chunks, kernels and memories. */

import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { EngineOptions, GenerateEvent } from '../../src/engine/api.ts';
import { generate } from '../../src/engine/generate.ts';
import { score } from '../../src/engine/score.ts';
import { readReference } from '../../src/eval/reference.ts';
import { Tokenizer } from '../../src/tokenizer/tokenizer.ts';
import { PACKS, packDirectory, withRuntime } from '../support/packs.ts';

/** Small enough that weights, KV and slots of a pack spread over several memories. */
const SMALL_ARENA_BYTES = 5 << 18;
const ALL = 48; // 3 layers of 16 experts

/** Lanes meet in every pass, which takes time: chunks of one row have one lane, and several lanes have single rows when they generate. */
const VARIANTS: { name: string; options: Omit<EngineOptions, 'model'>; arenaBytes?: number }[] = [
  { name: '25 % slots', options: { expertSlots: ALL / 4, prefetch: 'on' } },
  { name: '50 % slots, 2 lanes', options: { expertSlots: ALL / 2, threads: 2 } },
  { name: '25 % slots, no look-ahead', options: { expertSlots: ALL / 4, prefetch: 'off' } },
  { name: '60 % slots, chunk 1', options: { expertSlots: 29, chunk: 1, prefetch: 'on' } },
  { name: 'top-k slots, 4 lanes, chunk 19', options: { expertSlots: 4, threads: 4, chunk: 19 } },
  { name: 'chunk 7, 2 lanes', options: { chunk: 7, threads: 2 } },
  { name: 'chunk 64, 1 reader', options: { chunk: 64, readers: 1 } },
  { name: 'reference kernels', options: { kernels: 'reference', threads: 2 } },
  { name: 'baseline kernels', options: { kernels: 'wasm-baseline', threads: 3, chunk: 64 } },
  { name: 'several memories', options: { expertSlots: 20, threads: 2, chunk: 64 }, arenaBytes: SMALL_ARENA_BYTES },
  {
    name: 'several memories, chunk 13',
    options: { expertSlots: 4, threads: 2, chunk: 13 },
    arenaBytes: SMALL_ARENA_BYTES,
  },
];

const digest = (values: Float32Array) => createHash('sha256').update(Buffer.from(values.buffer)).digest('hex');

describe.each(PACKS)('%s', pack => {
  const model = packDirectory(pack);
  const { inputIds } = readReference(model, 3);
  const tokenizer = Tokenizer.load(model);
  const facts = { tokenBytes: tokenizer.tokenBytes, vocabSize: tokenizer.vocabSize, endOfTurnIds: [] };

  /** Bits of the logits of every position, and sampled tokens, of one runtime. */
  const run = (options: Omit<EngineOptions, 'model'>, arenaBytes?: number) =>
    withRuntime(
      { model, context: 256, threads: 1, ...options },
      (runtime, session) => {
        const logits = digest(score(runtime, session, { ids: inputIds, logits: true }).logits!);
        session.truncate(0);
        const request = { temperature: 0.9, topP: 0.95, seed: 7, maxTokens: 12, ignoreEos: true };
        const events: GenerateEvent[] = [];
        generate(runtime, session, facts, inputIds.slice(0, 40), request, event => events.push(event));
        const end = events.at(-1)!;
        if (end.type !== 'end') throw new Error('no end event');
        return { logits, tokens: end.tokenIds.join(' ') };
      },
      { arenaBytes },
    );

  test.each(['int8', 'exact'] as const)(
    'logits and sampled tokens are the same in every variant (%s)',
    async activations => {
      const expected = await run({ activations });
      for (const { name, options, arenaBytes } of VARIANTS) {
        expect(await run({ activations, ...options }, arenaBytes), name).toEqual(expected);
      }
    },
  );
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
