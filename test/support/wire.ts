/** What official clients rely on in streams, checked event by event; what comes back is the answer put together. */

import { expect } from 'vitest';
import * as z from 'zod';
import type { SseEvent } from './sse-reader.ts';

const text = z.string().min(1);

const Usage = z.strictObject({
  prompt_tokens: z.int().min(0),
  completion_tokens: z.int().min(0),
  total_tokens: z.int().min(0),
  prompt_tokens_details: z.strictObject({ cached_tokens: z.int().min(0) }),
  completion_tokens_details: z.strictObject({ reasoning_tokens: z.int().min(0) }),
});

const Likely = z.strictObject({
  token: z.string(),
  bytes: z.array(z.int().min(0).max(255)),
  logprob: z.number().max(0),
});
const Logprobs = z.strictObject({
  content: z.array(z.strictObject({ ...Likely.shape, top_logprobs: z.array(Likely) })),
  refusal: z.null(),
});

const Head = {
  id: z.string().regex(/^chatcmpl-\w+$/),
  created: z.int(),
  model: text,
  system_fingerprint: z.string().regex(/^fp_\w+$/),
};

const FirstCall = z.strictObject({
  index: z.int().min(0),
  id: text,
  type: z.literal('function'),
  function: z.strictObject({ name: text, arguments: z.literal('') }),
});
const MoreCall = z.strictObject({ index: z.int().min(0), function: z.strictObject({ arguments: text }) });

/** Fields that have nothing to say are absent: some clients read null as a value. */
const Delta = z.union([
  z.strictObject({ role: z.literal('assistant'), content: z.literal('') }),
  z.strictObject({ content: text }),
  z.strictObject({ reasoning_content: text }),
  z.strictObject({ tool_calls: z.tuple([z.union([FirstCall, MoreCall])]) }),
  z.strictObject({}),
]);

const Finish = z.enum(['stop', 'length', 'tool_calls']);

export const ChatChunk = z.strictObject({
  ...Head,
  object: z.literal('chat.completion.chunk'),
  choices: z
    .array(
      z.strictObject({
        index: z.literal(0),
        delta: Delta,
        logprobs: Logprobs.optional(),
        finish_reason: Finish.nullable(),
      }),
    )
    .max(1),
  usage: Usage.nullish(),
  progress: z.strictObject({ done: z.int(), total: z.int(), eta_ms: z.number().nullable() }).optional(),
});

const Call = z.strictObject({
  id: text,
  type: z.literal('function'),
  function: z.strictObject({ name: text, arguments: z.string() }),
});

export const ChatReply = z.strictObject({
  ...Head,
  object: z.literal('chat.completion'),
  choices: z.tuple([
    z.strictObject({
      index: z.literal(0),
      message: z.strictObject({
        role: z.literal('assistant'),
        content: z.string().nullable(),
        refusal: z.null(),
        reasoning_content: text.optional(),
        tool_calls: z.array(Call).min(1).optional(),
      }),
      finish_reason: Finish,
      logprobs: Logprobs.nullable(),
    }),
  ]),
  usage: Usage,
});

export interface Answer {
  content: string;
  reasoning: string;
  calls: { id: string; name: string; arguments: string }[];
  finish: string | null;
  usage: z.output<typeof Usage> | null;
  logprobs: z.output<typeof Logprobs>['content'];
  /** Pieces in which the content came. */
  pieces: string[];
}

/** A streamed chat answer that ended as it should. */
export function readChatStream(events: readonly SseEvent[]): Answer {
  expect(events.at(-1)?.data).toBe('[DONE]');
  const chunks = events.slice(0, -1).map(event => ChatChunk.parse(event.json));
  expect(new Set(chunks.map(({ id, created, model }) => `${id} ${created} ${model}`)).size).toBe(1);
  const answer: Answer = { content: '', reasoning: '', calls: [], finish: null, usage: null, logprobs: [], pieces: [] };
  expect(chunks[0].choices[0].delta).toEqual({ role: 'assistant', content: '' });
  for (const [i, { choices, usage }] of chunks.entries()) {
    if (usage) {
      expect(choices).toEqual([]);
      expect(i).toBe(chunks.length - 1);
      answer.usage = usage;
    }
    const [choice] = choices;
    if (!choice) continue;
    expect(answer.finish).toBeNull();
    if (i > 0) expect(choice.delta).not.toHaveProperty('role');
    if (choice.finish_reason === null) addDelta(answer, choice.delta);
    else expect(choice.delta).toEqual({});
    answer.finish = choice.finish_reason;
    answer.logprobs.push(...(choice.logprobs?.content ?? []));
  }
  expect(answer.finish).not.toBeNull();
  return answer;
}

function addDelta(answer: Answer, delta: z.output<typeof Delta>): void {
  if ('content' in delta) {
    answer.content += delta.content;
    if (delta.content !== '') answer.pieces.push(delta.content);
  } else if ('reasoning_content' in delta) answer.reasoning += delta.reasoning_content;
  else if ('tool_calls' in delta) {
    const [call] = delta.tool_calls;
    if ('id' in call) {
      expect(call.index).toBe(answer.calls.length);
      answer.calls.push({ id: call.id, name: call.function.name, arguments: '' });
    } else {
      expect(call.index).toBe(answer.calls.length - 1);
      answer.calls[call.index].arguments += call.function.arguments;
    }
  } else expect(delta).not.toEqual({});
}

/** The same of an answer in one piece. */
export function readChatReply(body: unknown): Answer {
  const { choices, usage } = ChatReply.parse(body);
  const [{ message, finish_reason: finish, logprobs }] = choices;
  expect(usage.total_tokens).toBe(usage.prompt_tokens + usage.completion_tokens);
  if (message.content === null) expect(message.tool_calls).toBeDefined();
  return {
    content: message.content ?? '',
    reasoning: message.reasoning_content ?? '',
    calls: (message.tool_calls ?? []).map(call => ({ id: call.id, ...call.function })),
    finish,
    usage,
    logprobs: logprobs?.content ?? [],
    pieces: [],
  };
}

/** Events of a Messages stream in the order that the API promises; gives what each block holds. */
export function readMessageStream(events: readonly SseEvent[]) {
  for (const { event, json } of events) expect(json.type).toBe(event);
  const told = events.filter(({ event }) => event !== 'ping').map(({ json }) => json);
  expect(told[0].type).toBe('message_start');
  expect(told[0].message).toMatchObject({ role: 'assistant', content: [], stop_reason: null });
  expect(told.at(-1)).toEqual({ type: 'message_stop' });
  const last = told.at(-2);
  expect(last.type).toBe('message_delta');
  const blocks: { type: string; text: string; name?: string; id?: string }[] = [];
  let open = false;
  for (const event of told.slice(1, -2)) {
    if (event.type === 'content_block_start') {
      expect([open, event.index]).toEqual([false, blocks.length]);
      open = true;
      const { type, name, id } = event.content_block;
      blocks.push({ type, text: '', ...(name !== undefined && { name, id }) });
      continue;
    }
    expect([open, event.index]).toEqual([true, blocks.length - 1]);
    if (event.type === 'content_block_stop') open = false;
    else {
      expect(event.type).toBe('content_block_delta');
      blocks.at(-1)!.text += event.delta.text ?? event.delta.thinking ?? event.delta.partial_json ?? '';
    }
  }
  expect(open).toBe(false);
  return { blocks, stop: last.delta, usage: last.usage, start: told[0].message };
}

/** Events of a Responses stream: numbered, named by their type, ended once. Gives the last event's response and the texts. */
export function readResponseStream(events: readonly SseEvent[]) {
  expect(events.at(-1)?.data).toBe('[DONE]');
  const told = events.slice(0, -1);
  for (const [i, { event, json }] of told.entries()) expect([json.type, json.sequence_number]).toEqual([event, i]);
  expect(told.slice(0, 2).map(({ event }) => event)).toEqual(['response.created', 'response.in_progress']);
  const joined = (type: string) =>
    told
      .filter(({ event }) => event === type)
      .map(({ json }) => json.delta)
      .join('');
  const { response, type } = told.at(-1)!.json;
  expect(type).toBe(`response.${response.status}`);
  return {
    response,
    text: joined('response.output_text.delta'),
    reasoning: joined('response.reasoning_text.delta'),
    arguments: joined('response.function_call_arguments.delta'),
  };
}
