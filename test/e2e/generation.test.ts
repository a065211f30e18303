/** Whole generations on models that say what they are told to: stopping, limits, text, sampling, prefix reuse. */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Engine, EngineOptions, GenerateEvent, GenerateRequest } from '../../src/engine/api.ts';
import { openEngine } from '../../src/engine/engine.ts';
import { ASSISTANT, END_OF_TEXT, END_OF_TURN, type ScriptedModel, writeChain, writeFlat } from '../fixtures/chain.ts';
import { writeTiny } from '../fixtures/tiny.ts';
import { TEST_RAM_BYTES } from '../support/packs.ts';

const root = fs.mkdtempSync(join(tmpdir(), 'coli-generation-'));
const engines: Engine[] = [];

afterAll(async () => {
  await Promise.all(engines.map(engine => engine.close()));
  fs.rmSync(root, { recursive: true, force: true });
});

async function open(model: string, options: Partial<EngineOptions> = {}): Promise<Engine> {
  const engine = await openEngine({ model, ram: TEST_RAM_BYTES, threads: 1, context: 256, ...options });
  engines.push(engine);
  return engine;
}

/** Runs a request; texts of the token events, joined, are the text of the end whatever happens. */
async function answer(engine: Engine, request: GenerateRequest) {
  const events: GenerateEvent[] = [];
  for await (const event of engine.generate(request)) events.push(event);
  const start = events[0];
  const end = events.at(-1)!;
  if (start.type !== 'start' || end.type !== 'end') throw new Error('no start or no end');
  const tokens = events.filter(event => event.type === 'token');
  expect(tokens.map(token => token.text).join('')).toBe(end.text);
  expect(tokens.map(token => token.id)).toEqual(end.tokenIds);
  expect(events.filter(event => event.type === 'end')).toHaveLength(1);
  return { ...end, start, deltas: tokens.map(token => token.text), tokens };
}

/** Continues a text, raw. */
const raw = (text: string, more: Partial<GenerateRequest> = {}): GenerateRequest => ({ prompt: { text }, ...more });

describe('a scripted model', () => {
  let model: ScriptedModel;
  let engine: Engine;

  beforeAll(async () => {
    model = writeChain(join(root, 'chain'), {
      chains: [
        [ASSISTANT, 'Hello', ' there', '!', END_OF_TURN],
        ['A', 'al', 'pha be', 'ta gam', 'ma'],
        ['B', [0xf0], [0x9f], [0x98], [0x80], 'x'],
        ['C', [0xe2, 0x80], ' y', [0xed, 0xa0, 0x80], 'z', [0xf0, 0x80, 0x80, 0x41], 'w', [0xe2]],
        ['D', ' a', ' b', '<|mark|>', 'c', '\n d'],
        ['E', 'text', '<|other|>', 'more'],
        ['G', [0xe2, 0x82], [0xac], ' 5', END_OF_TEXT],
      ],
      generationConfig: { eos_token_id: [256, 300], do_sample: false },
      config: { eos_token_id: 256 },
    });
    engine = await open(model.directory);
  });

  test("answers a conversation and stops at the template's end of turn", async () => {
    const prompt = { messages: [{ role: 'user', content: `Say hello. ${END_OF_TURN}${ASSISTANT}` }] };
    const result = await answer(engine, { prompt });
    expect(result.text).toBe('Hello there!');
    expect(result).toMatchObject({ finishReason: 'stop', stopReason: model.idOf(END_OF_TURN) });
    // what the user wrote stayed text: one end of turn, one assistant
    const count = (token: string) => result.start.promptIds.filter(id => id === model.idOf(token)).length;
    expect([count(END_OF_TURN), count(ASSISTANT)]).toEqual([1, 1]);
  });

  test('stops at an id of config.json, and names it', async () => {
    expect(await answer(engine, raw('A'))).toMatchObject({
      text: 'alpha beta gamma',
      finishReason: 'stop',
      stopReason: model.endOfTextId,
    });
  });

  test('goes on after stop ids with ignoreEos, without showing them', async () => {
    const ids = ['text', '<|other|>', 'more', END_OF_TEXT, END_OF_TEXT].map(token => model.idOf(token));
    const result = await answer(engine, raw('E', { ignoreEos: true, maxTokens: 5 }));
    expect(result).toMatchObject({ text: 'textmore', tokenIds: ids, finishReason: 'length', stopReason: null });
  });

  describe('stop strings', () => {
    test('over two tokens: the text ends before it, and nothing of it was shown', async () => {
      const result = await answer(engine, raw('A', { stop: ['nowhere', 'beta gamma'] }));
      expect(result).toMatchObject({ text: 'alpha ', finishReason: 'stop', stopReason: 'beta gamma' });
      expect(result.deltas).toEqual(['al', 'pha ', '', '']);
      expect(result.tokenIds).toHaveLength(4);
    });

    test('that does not come true is shown in the end', async () => {
      const result = await answer(engine, raw('A', { stop: ['gamma!'] }));
      expect(result).toMatchObject({ text: 'alpha beta gamma', stopReason: model.endOfTextId });
      expect(result.deltas).toEqual(['al', 'pha be', 'ta ', '', 'gamma']);
    });

    test('cut off by the token limit, what was held back is shown with the last token', async () => {
      const result = await answer(engine, raw('A', { stop: ['beta gamma'], maxTokens: 3 }));
      expect(result).toMatchObject({ text: 'alpha beta gam', finishReason: 'length', stopReason: null });
      expect(result.deltas).toEqual(['al', 'pha ', 'beta gam']);
    });

    test('inside one token, the earliest of several', async () => {
      const result = await answer(engine, raw('A', { stop: ['gam', 'pha', 'a b'] }));
      expect(result).toMatchObject({ text: 'al', stopReason: 'pha' });
    });

    test('over the bytes of one character', async () => {
      expect(await answer(engine, raw('B', { stop: ['😀'] }))).toMatchObject({ text: '', stopReason: '😀' });
    });

    test('across a special token, which has no text', async () => {
      expect(await answer(engine, raw('D', { stop: [' bc'] }))).toMatchObject({ text: ' a', stopReason: ' bc' });
    });

    test('not across a special token that the request wants to see', async () => {
      const markers = ['<|mark|>', '<|nowhere|>'];
      const { tokens, ...result } = await answer(engine, raw('D', { stop: [' bc'], markers }));
      expect(result).toMatchObject({ text: ' a bc\n d', stopReason: model.endOfTextId });
      const told = tokens.map(({ text, marker }) => (marker === undefined ? [text] : [text, marker]));
      expect(told).toEqual([[' a'], [''], [' b', '<|mark|>'], ['c'], ['\n d'], ['']]);
      expect((await answer(engine, raw('E', { markers: ['<|other|>'] }))).text).toBe('textmore');
    });

    test('together with log-probabilities: every token has them, hidden ones too', async () => {
      const { tokens } = await answer(engine, raw('A', { stop: ['beta gamma'], logprobs: 2 }));
      expect(tokens).toHaveLength(4);
      for (const { id, logprobs } of tokens) {
        expect(logprobs!.id).toBe(id);
        expect(logprobs!.top[0]).toEqual({ id, logprob: logprobs!.logprob });
        expect(logprobs!.top).toHaveLength(2);
      }
    });
  });

  describe('text', () => {
    test('an emoji in four tokens comes whole, with its last byte', async () => {
      const { deltas, text } = await answer(engine, raw('B'));
      expect(deltas).toEqual(['', '', '', '😀', 'x', '']);
      expect(text).toBe('😀x');
    });

    test('a character cut by the token limit is one U+FFFD', async () => {
      const { deltas } = await answer(engine, raw('B', { maxTokens: 2 }));
      expect(deltas).toEqual(['', '\ufffd']);
    });

    test('bytes that are no UTF-8 become U+FFFD as Unicode recommends, and nothing else is lost', async () => {
      const { text } = await answer(engine, raw('C'));
      expect(text).toBe('\ufffd y\ufffd\ufffd\ufffdz\ufffd\ufffd\ufffdAw\ufffd');
      expect((await answer(engine, raw('G'))).text).toBe('€ 5');
    });

    test('leading spaces stay, also after a special token; the whole equals one decoding of all ids', async () => {
      const { text, tokenIds } = await answer(engine, raw('D'));
      expect(text).toBe(' a bc\n d');
      expect(await engine.decode(tokenIds)).toBe(text);
    });
  });

  describe('limits', () => {
    test('no tokens at all', async () => {
      for (const logprobs of [undefined, 1]) {
        const result = await answer(engine, raw('A', { maxTokens: 0, logprobs }));
        expect(result).toMatchObject({ text: '', tokenIds: [], finishReason: 'length', stopReason: null });
      }
    });

    test.each([undefined, 1e12])('maxTokens %s means the rest of the context', async maxTokens => {
      const result = await answer(engine, raw('xxxA', { maxTokens, ignoreEos: true }));
      expect(result.start.sampling.maxTokens).toBe(256 - 4);
      expect(result.tokenIds).toHaveLength(256 - 4);
      expect(result.finishReason).toBe('length');
    });

    test('a prompt that leaves room for one token gets one, and one more is refused with the numbers', async () => {
      const result = await answer(engine, raw('A'.repeat(255)));
      expect(result).toMatchObject({ finishReason: 'length', tokenIds: [model.idOf('al')] });
      await expect(answer(engine, raw('A'.repeat(256)))).rejects.toMatchObject({
        code: 'CONTEXT_EXCEEDED',
        details: { promptTokens: 256, context: 256 },
      });
    });

    test.each([
      { prompt: { ids: [] }, code: 'EMPTY_PROMPT' },
      { prompt: { text: '' }, code: 'EMPTY_PROMPT' },
      { prompt: { ids: [-1] }, code: 'BAD_TOKEN_ID' },
      { prompt: { ids: [1.5] }, code: 'BAD_TOKEN_ID' },
      { prompt: { ids: [2 ** 31] }, code: 'BAD_TOKEN_ID' },
    ])('$prompt is refused: $code', async ({ prompt, code }) => {
      await expect(answer(engine, { prompt })).rejects.toMatchObject({ code });
    });
  });

  test('the same greedy request is the same ten times, alone and beside others, seeded or not', async () => {
    const runs = await Promise.all(
      Array.from({ length: 10 }, (_, seed) => answer(engine, raw('A', { temperature: 0, seed, logprobs: 3 }))),
    );
    for (const { tokens } of runs) expect(tokens).toEqual(runs[0].tokens);
  });
});

test('generation_config.json adds stop ids and greedy sampling', async () => {
  const chains = [['A', 'one', 'two', 'three']];
  const stopId = 262 + 1; // "two"
  const model = writeChain(join(root, 'stop-ids'), {
    chains,
    chatTemplate: null,
    config: { eos_token_id: null },
    generationConfig: { eos_token_id: [stopId], do_sample: false, max_new_tokens: 9 },
  });
  expect(model.idOf('two')).toBe(stopId);
  const engine = await open(model.directory);
  const result = await answer(engine, raw('A'));
  expect(result).toMatchObject({ text: 'one', finishReason: 'stop', stopReason: stopId });
  expect(result.start.sampling).toMatchObject({ temperature: 0, maxTokens: 9 });
  const loud = await answer(engine, raw('A', { temperature: 0.5, maxTokens: 3, ignoreEos: true }));
  expect(loud.start.sampling).toMatchObject({ temperature: 0.5, maxTokens: 3 });
});

describe('a model that hesitates between equal tokens', () => {
  const choices = ['red', 'green', 'blue', 'grey', 'pink', 'gold', 'cyan', 'teal'];
  let model: ScriptedModel;
  let engine: Engine;

  beforeAll(async () => {
    model = writeFlat(join(root, 'flat'), { choices });
    engine = await open(model.directory);
  });

  const ask = (more: Partial<GenerateRequest>, text = 'x') => answer(engine, raw(text, { maxTokens: 6, ...more }));

  test('twenty seeds give different texts, the same seed the same, and without a seed the reported one', async () => {
    const texts = new Set<string>();
    for (let seed = 0; seed < 20; seed++) {
      const { text } = await ask({ temperature: 1, seed });
      expect((await ask({ temperature: 1, seed })).text).toBe(text);
      texts.add(text);
    }
    expect(texts.size).toBeGreaterThan(15);
    const random = await ask({});
    expect((await ask({ seed: random.start.sampling.seed })).text).toBe(random.text);
  });

  test('greedy takes the lowest id of equals, whatever the seed', async () => {
    for (const seed of [1, 2]) expect((await ask({ temperature: 0, seed })).text).toBe('red'.repeat(6));
  });

  test('penalties for presence and frequency look at the answer only, repetition at the prompt too', async () => {
    const redPrompt = { prompt: { ids: [model.idOf('red')] }, temperature: 0, maxTokens: 1 };
    for (const penalty of [{ presencePenalty: 2 }, { frequencyPenalty: 2 }]) {
      expect((await answer(engine, { ...redPrompt, ...penalty })).text).toBe('red');
      expect((await ask({ ...penalty, temperature: 0, maxTokens: 3 })).text).toBe('redgreenblue');
    }
    expect((await answer(engine, { ...redPrompt, repetitionPenalty: 1.5 })).text).toBe('green');
    expect((await ask({ repetitionPenalty: 1.5, temperature: 0, maxTokens: 3 })).text).toBe('redgreenblue');
  });

  test('log-probabilities are those of the model, before penalties and bias', async () => {
    const bias = { [model.idOf('teal')]: 10 };
    const { tokens } = await ask({ temperature: 0, logprobs: 4, logitBias: bias, maxTokens: 2, presencePenalty: 2 });
    for (const { id, logprobs } of tokens) {
      expect(id).toBe(model.idOf('teal'));
      expect(logprobs!.logprob).toBeCloseTo(-Math.log(8), 5);
      // the four lowest ids of eight equals, and the chosen one besides
      expect(logprobs!.top.map(entry => entry.id)).toEqual(['red', 'green', 'blue', 'grey', 'teal'].map(model.idOf));
      const mass = logprobs!.top.reduce((sum, entry) => sum + Math.exp(entry.logprob), 0);
      expect(mass).toBeLessThanOrEqual(1 + 1e-6);
    }
  });
});

test('a conversation edited twenty times gives the bytes of a fresh engine at every step', async () => {
  const model = writeTiny(join(root, 'tiny'));
  const fresh = await open(model, { expertSlots: 8 });
  const warm = await open(model, { expertSlots: 3, chunk: 5, threads: 2 });
  const edit = fc.record({
    at: fc.double({ min: 0, max: 1, noNaN: true }),
    remove: fc.nat(12),
    insert: fc.array(fc.nat(255), { maxLength: 12 }),
  });
  const edits = fc.sample(edit, { numRuns: 20, seed: 7 });
  let ids: number[] = [1, 2, 3, 4, 5];
  let reused = 0;
  for (const { at, remove, insert } of edits) {
    const from = Math.floor(at * ids.length);
    ids = [...ids.slice(0, from), ...insert, ...ids.slice(from + remove)].slice(0, 120);
    if (ids.length === 0) ids = [9];
    const request = { prompt: { ids }, temperature: 0.8, seed: 3, maxTokens: 5, ignoreEos: true, logprobs: 3 };
    // scoring empties the session, so nothing of it is reused
    await fresh.score({ ids: [1] });
    const cold = await answer(fresh, request);
    const got = await answer(warm, request);
    expect(got.tokens).toEqual(cold.tokens);
    expect(got.text).toBe(cold.text);
    expect(cold.stats.prefill_tokens).toBe(ids[0] === 1 && ids.length > 1 ? ids.length - 1 : ids.length);
    reused += ids.length - got.stats.prefill_tokens;
    // sometimes the next turn keeps the answer, as a chat does
    if (insert.length % 2 === 0) ids = [...ids, ...got.tokenIds];
  }
  expect(reused).toBeGreaterThan(50);
});
