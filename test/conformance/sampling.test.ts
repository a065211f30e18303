/** The sampler as clients reach it: on a model whose next token is any of eight letters with the same probability. */

import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { writeFlat } from '../fixtures/chain.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';

const LETTERS = [...'abcdefgh'];
const directory = fileDirectory();
/** The model suggests nothing; the model suggests to be greedy. */
let server: Served;
let greedy: Served;
let id: Record<string, number>;

beforeAll(async () => {
  const [plain, careful] = ['plain', 'greedy'].map(name => path.join(directory, name));
  const model = writeFlat(plain, { choices: LETTERS });
  writeFlat(careful, { choices: LETTERS, generationConfig: { do_sample: true, temperature: 0.5, top_k: 1 } });
  id = Object.fromEntries(LETTERS.map(letter => [letter, model.idOf(letter)]));
  const args = ['--ctx', '256', '--slots', '4'];
  [server, greedy] = await Promise.all([plain, careful].map(each => startServe({ model: each, args })));
});

async function complete(more: object, { prompt = 'x', from = server } = {}): Promise<string> {
  const { status, body, text } = await from.post('/v1/completions', { prompt, max_tokens: 12, ...more });
  expect(status, text).toBe(200);
  return body.choices[0].text;
}

async function refused(more: object | string) {
  const body = typeof more === 'string' ? more : { prompt: 'x', max_tokens: 12, ...more };
  const { status, body: reply } = await server.post('/v1/completions', body);
  return { status, param: reply.error?.param, message: reply.error?.message };
}

const FIRST = 'aaaaaaaaaaaa';

describe('seed', () => {
  test('the same seed gives the same bytes on every route, others give others', async () => {
    const bySeed = await Promise.all([1, 2, 3, 1].map(seed => complete({ seed })));
    expect(bySeed[3]).toBe(bySeed[0]);
    expect(new Set(bySeed).size).toBe(3);
    const messages = [{ role: 'user', content: 'x' }];
    const chat = async (seed: number) =>
      (await server.post('/v1/chat/completions', { messages, max_tokens: 12, seed })).body.choices[0].message.content;
    const claude = async (seed: number) =>
      (await server.post('/v1/messages', { messages, max_tokens: 12, seed })).body.content[0].text;
    const response = async (seed: number) =>
      (await server.post('/v1/responses', { input: 'x', max_output_tokens: 12, seed })).body.output[0].content[0].text;
    expect(new Set(await Promise.all([chat(5), chat(5), claude(5), response(5)])).size).toBe(1);
    expect(await chat(6)).not.toBe(await chat(5));
  });

  test('without one, answers differ, and the one that was used is told where the API has a place for it', async () => {
    expect(new Set(await Promise.all(Array.from({ length: 4 }, () => complete({})))).size).toBeGreaterThan(1);
    const { body } = await server.post('/v1/responses', { input: 'x', max_output_tokens: 12 });
    const again = await server.post('/v1/responses', { input: 'x', max_output_tokens: 12, seed: body.seed });
    expect(again.body.output[0].content[0].text).toBe(body.output[0].content[0].text);
  });

  test('the whole range is taken, beyond is refused', async () => {
    for (const seed of [0, Number.MAX_SAFE_INTEGER]) expect(await complete({ seed })).toBe(await complete({ seed }));
    for (const seed of [-1, 0.5, 2 ** 53, '1'])
      expect(await refused({ seed })).toMatchObject({ status: 400, param: 'seed' });
  });
});

describe('temperature', () => {
  test('at 1, twenty seeds give more than a few letters; at 0 it is always the first', async () => {
    const firsts = await Promise.all(
      Array.from({ length: 20 }, (_, seed) => complete({ seed, temperature: 1, max_tokens: 1 })),
    );
    expect(new Set(firsts).size).toBeGreaterThan(3);
    expect(await complete({ temperature: 0, seed: 7 })).toBe(FIRST);
  });

  test.each([
    ['-1', -1],
    ['a string', '0.7'],
    ['true', true],
    ['an object', {}],
  ])('%s is refused by name', async (_, temperature) => {
    expect(await refused({ temperature })).toMatchObject({ status: 400, param: 'temperature' });
  });

  test.each(['1e309', '-1e309', 'NaN', 'Infinity'])('%s in the JSON text is refused', async value => {
    expect((await refused(`{"prompt": "x", "max_tokens": 2, "temperature": ${value}}`)).status).toBe(400);
  });

  test('null is the default', async () => {
    expect(await complete({ temperature: null, seed: 3 })).toBe(await complete({ seed: 3 }));
  });
});

describe('the model directory suggests settings', () => {
  test('they hold, a request beats each of them, and both can be read', async () => {
    expect(await complete({ seed: 1 }, { from: greedy })).toBe(FIRST);
    const free = await complete({ seed: 1, top_k: 0, temperature: 1 }, { from: greedy });
    expect(free).toBe(await complete({ seed: 1 }));
    expect(free).not.toBe(FIRST);
    const { body: props } = await greedy.get('/props');
    expect(props.default_generation_settings.params).toMatchObject({ temperature: 0.5, top_k: 1, top_p: 1 });
    const asked = { input: 'x', max_output_tokens: 1, temperature: 0.25 };
    expect((await greedy.post('/v1/responses', asked)).body.temperature).toBe(0.25);
    expect((await greedy.post('/v1/responses', { ...asked, temperature: null })).body.temperature).toBe(0.5);
  });
});

describe('limits on the choice', () => {
  test('top_k: 0 and more than there are tokens are no limit, 1 is the first', async () => {
    const free = await complete({ seed: 4 });
    for (const top_k of [0, 8, 362, 9_999_999, null]) expect(await complete({ seed: 4, top_k })).toBe(free);
    expect(await complete({ seed: 4, top_k: 1 })).toBe(FIRST);
    const three = await Promise.all([1, 2, 3, 4].map(seed => complete({ seed, top_k: 3 })));
    expect(new Set(three.join(''))).toEqual(new Set('abc'));
  });

  test('top_p and min_p', async () => {
    const half = await Promise.all([1, 2, 3, 4].map(seed => complete({ seed, top_p: 0.49 })));
    expect(new Set(half.join(''))).toEqual(new Set('abcd'));
    expect(await complete({ seed: 4, top_p: 1e-9 })).toBe(FIRST);
    expect(await complete({ seed: 4, min_p: 1 })).toBe(await complete({ seed: 4 }));
  });

  test.each([
    { top_k: -1 },
    { top_k: 1.5 },
    { top_k: '5' },
    { top_p: 0 },
    { top_p: 1.0001 },
    { top_p: -0.5 },
    { min_p: -0.1 },
    { min_p: 2 },
    { n: 2 },
    { best_of: 3 },
    { presence_penalty: 2.5 },
    { frequency_penalty: -3 },
    { repetition_penalty: 0 },
    { logprobs: 21 },
    { mirostat: 2 },
    { typical_p: 0.5 },
  ])('%o is refused by name', async more => {
    expect(await refused(more)).toMatchObject({ status: 400, param: Object.keys(more)[0] });
  });
});

describe('penalties', () => {
  const first = { temperature: 0, max_tokens: 1 };

  test('presence and frequency look at the answer only', async () => {
    for (const more of [{ presence_penalty: 2 }, { frequency_penalty: 2 }]) {
      expect(await complete({ ...first, ...more }, { prompt: 'aaa' })).toBe('a');
      expect(await complete({ temperature: 0, max_tokens: 8, ...more }, { prompt: 'aaa' })).toBe('abcdefgh');
    }
    // once is enough for presence; frequency goes on counting
    const twice = { temperature: 0, max_tokens: 10 };
    expect(await complete({ ...twice, presence_penalty: 1 })).toBe('abcdefghaa');
    expect(await complete({ ...twice, frequency_penalty: 1 })).toBe('abcdefghab');
  });

  test('repetition looks at the prompt too', async () => {
    expect(await complete({ ...first, repetition_penalty: 2 }, { prompt: 'aaa' })).toBe('b');
    expect(await complete({ ...first, repetition_penalty: 2 }, { prompt: 'xyz' })).toBe('a');
    expect(await complete({ temperature: 0, max_tokens: 4, repetition_penalty: 2 }, { prompt: 'ace' })).toBe('bdfg');
  });
});

describe('logit_bias', () => {
  test('bans, prefers, and takes ids as text', async () => {
    const banned = Object.fromEntries([...'abc'].map(letter => [id[letter], -100]));
    expect(await complete({ temperature: 0, logit_bias: banned })).toBe('dddddddddddd');
    expect(await complete({ seed: 1, logit_bias: { [id['g']]: 100 } })).toBe('gggggggggggg');
    expect(await complete({ temperature: 0, logit_bias: {} })).toBe(FIRST);
    expect(await complete({ temperature: 0, logit_bias: null })).toBe(FIRST);
  });

  test.each([
    ['an id that does not exist', { 99999: 1 }],
    ['a word', { hello: 1 }],
    ['a negative id', { '-1': 1 }],
    ['too much', { 97: 101 }],
    ['text', { 97: '5' }],
    ['null', { 97: null }],
  ])('%s is refused', async (_, logit_bias) => {
    const { status, message } = await refused({ logit_bias });
    expect(status).toBe(400);
    expect(message).toContain('logit_bias');
  });
});

describe('log-probabilities', () => {
  const chat = async (more: object) => {
    const request = { messages: [{ role: 'user', content: 'x' }], max_tokens: 4, ...more };
    return (await server.post('/v1/chat/completions', request)).body.choices[0].logprobs;
  };

  test('each token is in its own table, which sums to at most 1, with text and bytes', async () => {
    const { content } = await chat({ logprobs: true, top_logprobs: 20, seed: 2 });
    for (const { token, bytes, logprob, top_logprobs } of content) {
      expect(Buffer.from(bytes).toString()).toBe(token);
      expect(LETTERS).toContain(token);
      expect(logprob).toBeCloseTo(Math.log(1 / 8), 4);
      expect(top_logprobs.map((top: { token: string }) => top.token)).toContain(token);
      const sum = top_logprobs.reduce((total: number, top: { logprob: number }) => total + Math.exp(top.logprob), 0);
      expect(sum).toBeLessThanOrEqual(1 + 1e-4);
      for (const top of top_logprobs) expect(top.token).not.toMatch(/token_id/);
    }
  });

  test('0 gives the chosen ones alone; without the switch there are none', async () => {
    const { content } = await chat({ logprobs: true, seed: 2 });
    expect(content.map((token: { top_logprobs: unknown[] }) => token.top_logprobs)).toEqual([[], [], [], []]);
    expect(await chat({})).toBeNull();
    expect(await chat({ logprobs: false })).toBeNull();
  });

  test('they are those of the model, before temperature, penalties and bias', async () => {
    const logit_bias = { [id['a']]: -100, [id['b']]: 5 };
    for (const more of [{ presence_penalty: 2 }, { temperature: 0.1 }, { logit_bias }, { top_k: 2 }]) {
      const { content } = await chat({ logprobs: true, seed: 2, ...more });
      for (const { logprob } of content) expect(logprob).toBeCloseTo(Math.log(1 / 8), 4);
    }
  });

  test('completions: the table of each token has it, also where the table is smaller than the choice', async () => {
    const { body } = await server.post('/v1/completions', { prompt: 'x', max_tokens: 6, logprobs: 1, seed: 9 });
    const { tokens, top_logprobs, text_offset } = body.choices[0].logprobs;
    for (const [i, token] of tokens.entries()) expect(Object.keys(top_logprobs[i])).toContain(token);
    expect(text_offset).toEqual([0, 1, 2, 3, 4, 5]);
  });
});
