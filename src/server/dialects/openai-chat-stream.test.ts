import type { ChatCompletion, ChatCompletionChunk } from 'openai/resources/chat/completions';
import { expect, test } from 'vitest';
import type { TurnEvent, TurnLogprobs } from '../turn.ts';
import { type ChatReply, collectChat } from './openai-chat-reply.ts';
import { type ChatChunk, ChatStream } from './openai-chat-stream.ts';

const head = { id: 'chatcmpl-1', created: 5, model: 'nano', system_fingerprint: 'fp_1' };
const usage = { promptTokens: 7, cachedTokens: 3, completionTokens: 4, reasoningTokens: 1 };
const totals = {
  prompt_tokens: 7,
  completion_tokens: 4,
  total_tokens: 11,
  prompt_tokens_details: { cached_tokens: 3 },
  completion_tokens_details: { reasoning_tokens: 1 },
};
const token: TurnLogprobs = {
  token: 'é',
  bytes: [195, 169],
  logprob: -0.5,
  top: [{ token: 'e', bytes: [101], logprob: -1 }],
};
const tokenReply = {
  token: 'é',
  bytes: [195, 169],
  logprob: -0.5,
  top_logprobs: [{ token: 'e', bytes: [101], logprob: -1 }],
};

const events: TurnEvent[] = [
  { type: 'accepted', promptTokens: 7 },
  { type: 'progress', done: 4, total: 7, etaMs: 20 },
  { type: 'reasoning', text: 'hm', logprobs: [token] },
  { type: 'text', text: 'é', logprobs: [token] },
  { type: 'call', index: 0, id: 'call_a', name: 'weather' },
  { type: 'arguments', index: 0, text: '{"a":' },
  { type: 'arguments', index: 0, text: '1}' },
  { type: 'call', index: 1, id: 'call_b', name: 'time' },
  { type: 'arguments', index: 1, text: '{}' },
  { type: 'end', finish: 'tool_calls', stopSequence: null, usage },
];

async function* stream(list: readonly TurnEvent[]): AsyncGenerator<TurnEvent> {
  yield* list;
}

function chunks(options: { usage?: boolean; progress?: boolean } = {}): ChatChunk[] {
  const chat = new ChatStream(head, { usage: false, progress: false, ...options });
  return events.flatMap(event => chat.chunks(event));
}

test('replies and chunks have the types of the official client', () => {
  // what these take is looked at by the compiler
  const whole = (reply: ChatReply): ChatCompletion => reply;
  const part = (chunk: ChatChunk): ChatCompletionChunk => chunk;
  expect([whole, part]).toHaveLength(2);
});

test('a whole answer joins text, reasoning and calls', async () => {
  const reply = await collectChat(stream(events), head, true);
  expect(reply).toEqual({
    ...head,
    object: 'chat.completion',
    choices: [
      {
        index: 0,
        message: {
          role: 'assistant',
          content: 'é',
          refusal: null,
          reasoning_content: 'hm',
          tool_calls: [
            { id: 'call_a', type: 'function', function: { name: 'weather', arguments: '{"a":1}' } },
            { id: 'call_b', type: 'function', function: { name: 'time', arguments: '{}' } },
          ],
        },
        finish_reason: 'tool_calls',
        logprobs: { content: [tokenReply], refusal: null },
      },
    ],
    usage: totals,
  });
});

test('content is null only beside calls, and fields without a value are absent', async () => {
  const end = events[events.length - 1];
  const empty = await collectChat(stream([events[0], { ...end, finish: 'length' } as TurnEvent]), head, false);
  expect(empty.choices[0]).toEqual({
    index: 0,
    message: { role: 'assistant', content: '', refusal: null },
    finish_reason: 'length',
    logprobs: null,
  });
  const calls = await collectChat(stream([...events.slice(4, 7), end]), head, false);
  expect(calls.choices[0].message.content).toBeNull();
});

test('a turn without an end is an error', async () => {
  await expect(collectChat(stream(events.slice(0, 4)), head, false)).rejects.toMatchObject({
    code: 'TURN_WITHOUT_END',
  });
});

test('chunks: the role first, then what changed, then the reason of the end', () => {
  const list = chunks();
  expect(list.map(({ choices }) => choices[0])).toEqual([
    { index: 0, delta: { role: 'assistant', content: '' }, finish_reason: null },
    { index: 0, delta: { reasoning_content: 'hm' }, finish_reason: null },
    { index: 0, delta: { content: 'é' }, logprobs: { content: [tokenReply], refusal: null }, finish_reason: null },
    call(0, { id: 'call_a', type: 'function', function: { name: 'weather', arguments: '' } }),
    call(0, { function: { arguments: '{"a":' } }),
    call(0, { function: { arguments: '1}' } }),
    call(1, { id: 'call_b', type: 'function', function: { name: 'time', arguments: '' } }),
    call(1, { function: { arguments: '{}' } }),
    { index: 0, delta: {}, finish_reason: 'tool_calls' },
  ]);
  for (const chunk of list) expect(chunk).toMatchObject({ ...head, object: 'chat.completion.chunk' });
  expect(list.some(chunk => 'usage' in chunk || 'progress' in chunk)).toBe(false);
});

function call(index: number, delta: object) {
  return { index: 0, delta: { tool_calls: [{ index, ...delta }] }, finish_reason: null };
}

test('usage comes last and alone, and is null until then', () => {
  const list = chunks({ usage: true });
  expect(list.slice(0, -1).every(chunk => chunk.usage === null && chunk.choices.length === 1)).toBe(true);
  expect(list.at(-1)).toMatchObject({ choices: [], usage: totals });
});

test('progress is told when asked for', () => {
  const told = chunks({ progress: true }).filter(chunk => chunk.progress);
  expect(told).toEqual([
    { ...head, object: 'chat.completion.chunk', choices: [], progress: { done: 4, total: 7, eta_ms: 20 } },
  ]);
});
