/** One streamed answer of a server: chunks of its chat API, as events of a chat. */

import { RequestError } from '../common/errors.ts';
import type { Clock } from './clock.ts';
import { field, numberField, parseJson, stringField } from './json-fields.ts';
import { tokenAmount } from './progress.ts';
import { saidByServer } from './server-refusal.ts';
import { SseParser } from './sse-parser.ts';
import type { TalkEvent } from './talker.ts';

/** What is known of an answer; filled while it comes, so that it is also there for one that breaks. Times in milliseconds. */
export interface AnswerFacts {
  readonly startedMs: number;
  /** When its first letters came, and its end. */
  firstMs: number | null;
  lastMs: number | null;
  /** Letters of the answer itself, not of its reasoning. */
  hasText: boolean;
  finish: 'stop' | 'length' | null;
  usage: AnswerUsage | null;
  fingerprint: string | null;
}

export interface AnswerUsage {
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly reasoningTokens: number;
}

export function newFacts(startedMs: number): AnswerFacts {
  const nothing = { firstMs: null, lastMs: null, finish: null, usage: null, fingerprint: null };
  return { startedMs, hasText: false, ...nothing };
}

/** Until [DONE]. Throws the server's own error, BAD_STREAM, ANSWER_CUT, and what reading the body throws. */
export async function* readAnswer(
  body: AsyncIterable<Uint8Array>,
  facts: AnswerFacts,
  clock: Clock,
): AsyncGenerator<TalkEvent, void> {
  const parser = new SseParser();
  for await (const bytes of body) {
    for (const { data } of parser.push(bytes)) {
      if (data === '[DONE]') {
        if (facts.finish === null) throw cut();
        return;
      }
      for (const event of readChunk(data, facts)) {
        if (event.type !== 'progress') facts.firstMs ??= clock.now();
        yield event;
      }
      facts.lastMs = clock.now();
    }
  }
  // without its end nobody knows whether something is missing
  throw cut();
}

function cut(): RequestError {
  return new RequestError('ANSWER_CUT', 'the server ended the connection before the answer was complete');
}

function* readChunk(data: string, facts: AnswerFacts): Generator<TalkEvent> {
  const chunk = parseJson(data);
  if (typeof chunk !== 'object' || chunk === null) {
    throw new RequestError('BAD_STREAM', "the server's answer has an event that is no JSON object");
  }
  const error = field(chunk, 'error');
  if (error !== undefined) {
    throw saidByServer(stringField(error, 'message') ?? 'something went wrong', stringField(error, 'code'));
  }
  facts.fingerprint ??= stringField(chunk, 'system_fingerprint');
  facts.usage = readUsage(field(chunk, 'usage')) ?? facts.usage;
  yield* readProgress(field(chunk, 'progress'));
  const choice = field(field(chunk, 'choices'), '0');
  const delta = field(choice, 'delta');
  const reasoning = stringField(delta, 'reasoning_content');
  if (reasoning) yield { type: 'reasoning', text: reasoning };
  const text = stringField(delta, 'content');
  if (text) {
    facts.hasText = true;
    yield { type: 'text', text };
  }
  const finish = stringField(choice, 'finish_reason');
  if (finish !== null) facts.finish = finish === 'length' ? 'length' : 'stop';
}

function* readProgress(progress: unknown): Generator<TalkEvent> {
  const [done, total] = [numberField(progress, 'done'), numberField(progress, 'total')];
  if (done === null || total === null) return;
  const etaMs = numberField(progress, 'eta_ms');
  yield { type: 'progress', label: 'prefill', done, total, amount: tokenAmount, etaMs };
}

function readUsage(usage: unknown): AnswerUsage | null {
  const promptTokens = numberField(usage, 'prompt_tokens');
  const completionTokens = numberField(usage, 'completion_tokens');
  if (promptTokens === null || completionTokens === null) return null;
  return {
    promptTokens,
    completionTokens,
    cachedTokens: numberField(field(usage, 'prompt_tokens_details'), 'cached_tokens') ?? 0,
    reasoningTokens: numberField(field(usage, 'completion_tokens_details'), 'reasoning_tokens') ?? 0,
  };
}
