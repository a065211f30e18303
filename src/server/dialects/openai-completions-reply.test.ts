import type { Completion } from 'openai/resources/completions';
import { expect, test } from 'vitest';
import type { TurnEvent, TurnLogprobs } from '../turn.ts';
import {
  type CompletionChunk,
  type CompletionReply,
  CompletionStream,
  joinChoices,
} from './openai-completions-reply.ts';

const head = { id: 'cmpl-1', created: 5, model: 'nano', system_fingerprint: 'fp_1' };
const usage = { promptTokens: 2, cachedTokens: 1, completionTokens: 3, reasoningTokens: 0 };

function token(text: string, logprob: number, top: [string, number][] = []): TurnLogprobs {
  return { token: text, bytes: [], logprob, top: top.map(([token, logprob]) => ({ token, bytes: [], logprob })) };
}

const events: TurnEvent[] = [
  { type: 'accepted', promptTokens: 2 },
  { type: 'progress', done: 1, total: 2, etaMs: null },
  { type: 'text', text: '😀 a', logprobs: [token('😀', -1, [['x', -0.5]]), token(' a', -2, [[' a', -2]])] },
  { type: 'text', text: 'b', logprobs: [token('b', -3)] },
  { type: 'end', finish: 'length', stopSequence: null, usage },
];

function chunks(options: Partial<{ usage: boolean; progress: boolean; logprobs: boolean }> = {}): CompletionChunk[] {
  const stream = new CompletionStream(head, { usage: false, progress: false, logprobs: false, ...options });
  const both = [0, 1].flatMap(index => events.flatMap(event => stream.chunks(index, event)));
  return [...both, ...stream.end()];
}

test('a reply has the type of the official client', () => {
  const whole = (reply: CompletionReply): Omit<Completion, 'choices'> => reply;
  expect(whole).toBeDefined();
});

test('chunks carry the index of their prompt, and the reason of its end', () => {
  const choice = (index: number, text: string, finish_reason: string | null = null) => [
    { index, text, logprobs: null, finish_reason },
  ];
  const list = chunks();
  expect(list.map(chunk => chunk.choices)).toEqual([
    choice(0, ''),
    choice(0, '😀 a'),
    choice(0, 'b'),
    choice(0, '', 'length'),
    choice(1, ''),
    choice(1, '😀 a'),
    choice(1, 'b'),
    choice(1, '', 'length'),
  ]);
  for (const chunk of list) expect(chunk).toMatchObject({ ...head, object: 'text_completion' });
  expect(list.some(chunk => 'usage' in chunk)).toBe(false);
});

test('usage is the sum over the prompts, in a last chunk', () => {
  const list = chunks({ usage: true });
  expect(list.slice(0, -1).every(chunk => chunk.usage === null)).toBe(true);
  expect(list.at(-1)).toMatchObject({
    choices: [],
    usage: { prompt_tokens: 4, completion_tokens: 6, total_tokens: 10, prompt_tokens_details: { cached_tokens: 2 } },
  });
});

test('progress is told when asked for', () => {
  expect(chunks({ progress: true }).filter(chunk => chunk.progress)).toHaveLength(2);
});

test('log-probabilities: tables with the chosen token, offsets in characters of the text', () => {
  const first = chunks({ logprobs: true }).flatMap(({ choices }) => choices.filter(({ index }) => index === 0));
  const last = { index: 0, text: '😀 ab', finish_reason: 'length' };
  expect(joinChoices(first)).toEqual({
    ...last,
    logprobs: {
      tokens: ['😀', ' a', 'b'],
      token_logprobs: [-1, -2, -3],
      top_logprobs: [{ '😀': -1, x: -0.5 }, { ' a': -2 }, { b: -3 }],
      text_offset: [0, 1, 3],
    },
  });
});

test('of tokens that look alike, the likelier one is in the table', () => {
  const stream = new CompletionStream(head, { usage: false, progress: false, logprobs: true });
  const logprobs = [
    token('\ufffd', -4, [
      ['\ufffd', -1],
      ['__proto__', -2],
    ]),
  ];
  const [chunk] = stream.chunks(0, { type: 'text', text: '\ufffd', logprobs });
  expect(JSON.stringify(chunk.choices[0].logprobs?.top_logprobs)).toBe('[{"\ufffd":-1,"__proto__":-2}]');
});
