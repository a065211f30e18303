import { expect, test } from 'vitest';
import { USAGE } from '../../../test/support/turn-server.ts';
import type { TurnEvent } from '../turn.ts';
import { type ResponseEvent, ResponseWriter } from './responses-events.ts';
import type { ResponseObject } from './responses-object.ts';

const END = { type: 'end', finish: 'stop', stopSequence: null, usage: USAGE } as const;
const SAMPLING = {
  temperature: 0.6,
  topP: 0.8,
  topK: 0,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  seed: 5,
  maxTokens: 9,
};

function play(turn: readonly TurnEvent[], body: object = {}) {
  const head = { id: 'resp_1', model: 'nano', createdAt: 100, body: { input: 'Hello', ...body } };
  const writer = new ResponseWriter(head, () => 107);
  const events = turn.flatMap(event => writer.events(event));
  return { events, writer };
}

const ACCEPTED: TurnEvent = { type: 'accepted', promptTokens: 20, sampling: SAMPLING };
const EVERYTHING: TurnEvent[] = [
  ACCEPTED,
  { type: 'progress', done: 8, total: 20, etaMs: null },
  { type: 'reasoning', text: 'Hm' },
  { type: 'reasoning', text: 'm.' },
  { type: 'text', text: 'Let me ' },
  { type: 'text', text: 'see.' },
  { type: 'call', index: 0, id: 'call_a', name: 'weather' },
  { type: 'arguments', index: 0, text: '{"city":' },
  { type: 'arguments', index: 0, text: '"Roma"}' },
  { type: 'call', index: 1, id: 'call_b', name: 'time' },
  { ...END, finish: 'tool_calls' },
];

const outline = (events: readonly ResponseEvent[]) =>
  events.map(
    ({ type, output_index }) => type.replace('response.', '') + (output_index === undefined ? '' : ` ${output_index}`),
  );

test('the limit in force is told, also to those who gave none', () => {
  const limit = (body: object) => play([ACCEPTED, END], body).writer.result?.['max_output_tokens'];
  expect(limit({})).toBe(SAMPLING.maxTokens);
  expect(limit({ max_output_tokens: SAMPLING.maxTokens + 1000 })).toBe(SAMPLING.maxTokens);
});

test('events come in the documented order, numbered', () => {
  const { events } = play(EVERYTHING);
  expect(events.map(event => event.sequence_number)).toEqual(events.map((_, index) => index));
  expect(outline(events)).toEqual([
    'created',
    'in_progress',
    'output_item.added 0',
    'content_part.added 0',
    'reasoning_text.delta 0',
    'reasoning_text.delta 0',
    'reasoning_text.done 0',
    'content_part.done 0',
    'output_item.done 0',
    'output_item.added 1',
    'content_part.added 1',
    'output_text.delta 1',
    'output_text.delta 1',
    'output_text.done 1',
    'content_part.done 1',
    'output_item.done 1',
    'output_item.added 2',
    'function_call_arguments.delta 2',
    'function_call_arguments.delta 2',
    'function_call_arguments.done 2',
    'output_item.done 2',
    'output_item.added 3',
    'function_call_arguments.done 3',
    'output_item.done 3',
    'completed',
  ]);
});

test('events of an item name it, begin empty and end whole', () => {
  const { events } = play(EVERYTHING);
  const of = (index: number) => events.filter(event => event.output_index === index);
  for (const index of [0, 1, 2, 3]) {
    const [added, ...rest] = of(index);
    const id = (added.item as { id: string }).id;
    expect(rest.every(event => event.item_id === id || (event.item as { id: string })?.id === id)).toBe(true);
  }
  expect(of(1)[0].item).toEqual({
    type: 'message',
    id: expect.stringMatching(/^msg_/),
    status: 'in_progress',
    role: 'assistant',
    content: [],
  });
  expect(of(1)[1].part).toEqual({ type: 'output_text', text: '', annotations: [], logprobs: [] });
  expect(of(1)[4]).toMatchObject({ text: 'Let me see.' });
  expect(of(1)[6].item).toMatchObject({ status: 'completed', content: [{ text: 'Let me see.' }] });
  expect(of(2)[0].item).toMatchObject({ arguments: '', status: 'in_progress', call_id: 'call_a', name: 'weather' });
  expect(of(2)[4].item).toMatchObject({ arguments: '{"city":"Roma"}', status: 'completed' });
});

test('the last event has the whole answer', () => {
  const { events, writer } = play(EVERYTHING, { temperature: 0.6, metadata: { a: 'b' } });
  const last = events[events.length - 1].response as ResponseObject;
  expect(last).toBe(writer.result);
  expect(last.output).toEqual(
    events.filter(({ type }) => type === 'response.output_item.done').map(({ item }) => item),
  );
  expect(last).toMatchObject({
    id: 'resp_1',
    object: 'response',
    status: 'completed',
    created_at: 100,
    completed_at: 107,
    error: null,
    incomplete_details: null,
    temperature: 0.6,
    top_p: 0.8,
    seed: 5,
    store: false,
    metadata: { a: 'b' },
    usage: {
      input_tokens: 20,
      input_tokens_details: { cached_tokens: 12 },
      output_tokens: 7,
      output_tokens_details: { reasoning_tokens: 3 },
      total_tokens: 27,
    },
  });
  expect(events[0].response).toMatchObject({ status: 'in_progress', output: [], usage: null, completed_at: null });
});

test('an answer that reached its length is incomplete, and so is its last item', () => {
  const { events, writer } = play([
    ACCEPTED,
    { type: 'reasoning', text: 'a' },
    { type: 'text', text: 'b' },
    { ...END, finish: 'length' },
  ]);
  expect(events[events.length - 1].type).toBe('response.incomplete');
  expect(writer.result).toMatchObject({
    status: 'incomplete',
    incomplete_details: { reason: 'max_output_tokens' },
    completed_at: null,
    output: [
      { type: 'reasoning', status: 'completed' },
      { type: 'message', status: 'incomplete' },
    ],
  });
});

test('log-probabilities go with the text', () => {
  const token = { token: 'a', bytes: [97], logprob: -0.5 };
  const text: TurnEvent = { type: 'text', text: 'a', logprobs: [{ ...token, top: [token] }] };
  const told = [{ ...token, top_logprobs: [token] }];
  const { events, writer } = play([ACCEPTED, text, text, END], { top_logprobs: 1 });
  expect(events.filter(({ type }) => type.endsWith('delta')).map(({ logprobs }) => logprobs)).toEqual([told, told]);
  expect(writer.result!.output[0]).toMatchObject({ content: [{ logprobs: [...told, ...told] }] });
});

test('reasoning in a portable form and progress come only when asked for', () => {
  const body = { include: ['reasoning.encrypted_content'], stream: true, stream_options: { include_progress: true } };
  const { events, writer } = play(EVERYTHING, body);
  expect(writer.result!.output[0]).toMatchObject({ encrypted_content: `plain:${btoa('Hmm.')}` });
  expect(events[2]).toMatchObject({ type: 'response.in_progress', progress: { done: 8, total: 20, eta_ms: null } });
  expect(JSON.stringify(play(EVERYTHING).events)).not.toMatch(/encrypted_content|"progress"/);
});

test('a failure keeps what is there, and ends with the error', () => {
  const { writer } = play([ACCEPTED, { type: 'text', text: 'a' }]);
  const error = {
    status: 500,
    type: 'server_error',
    code: 'numeric',
    param: null,
    message: 'not finite',
    retryAfterSeconds: null,
    ours: true,
  };
  const events = writer.failure(error);
  expect(outline(events)).toEqual([
    'output_text.done 0',
    'content_part.done 0',
    'output_item.done 0',
    'failed',
    'error',
  ]);
  expect(events[3].response).toMatchObject({
    status: 'failed',
    error: { code: 'server_error', message: 'not finite' },
    output: [{ type: 'message', status: 'incomplete', content: [{ text: 'a' }] }],
  });
  expect(events[4]).toMatchObject({ code: 'numeric', message: 'not finite', param: null, sequence_number: 9 });
  expect(writer.result).toBeNull();
});

test('arguments of a call that is not open are a bug', () => {
  expect(() => play([ACCEPTED, { type: 'arguments', index: 0, text: '{}' }])).toThrow('while undefined is open');
});
