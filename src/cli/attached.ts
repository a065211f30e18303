/** A chat with a server: /v1/chat/completions of a colibri server, streamed. */

import type { IncomingMessage } from 'node:http';
import { RequestError } from '../common/errors.ts';
import type { ChatMessage } from '../engine/api.ts';
import { randomSeed } from '../engine/random.ts';
import { SAMPLING_RULES, type SamplingField } from '../engine/sampling-options.ts';
import { type AnswerFacts, newFacts, readAnswer } from './attached-answer.ts';
import { attachedFooter, attachedStatistics } from './attached-report.ts';
import { type AttachedServer, describeServer, whenReady } from './attached-server.ts';
import { type Clock, systemClock } from './clock.ts';
import type { ServerClient } from './server-client.ts';
import { notColibri, refusal } from './server-refusal.ts';
import type { AnswerOptions, TalkEnd, TalkEvent, Talker } from './talker.ts';

const WAITING: TalkEvent = {
  type: 'progress',
  label: 'waiting for',
  done: 0,
  total: 0,
  amount: () => 'the server',
  etaMs: null,
};

export class AttachedTalker implements Talker {
  readonly #client: ServerClient;
  readonly #clock: Clock;
  /** A conversation stays with its model: another one behind the same address is refused by the server. */
  readonly #model: string;
  #server: AttachedServer;

  /** `server`: what `whenReady` returned. */
  constructor(client: ServerClient, server: AttachedServer, clock: Clock = systemClock) {
    this.#client = client;
    this.#server = server;
    this.#model = server.model;
    this.#clock = clock;
  }

  async *ask(
    messages: readonly ChatMessage[],
    asked: AnswerOptions,
    signal: AbortSignal,
  ): AsyncGenerator<TalkEvent, void> {
    const facts = newFacts(this.#clock.now());
    // servers do not tell the seed that they draw, and the user is to be able to ask for the same text again
    const options = { ...asked, seed: asked.seed ?? randomSeed() };
    try {
      const response = yield* this.#begin(chatBody(this.#model, messages, options), signal);
      yield* this.#read(response, facts);
      yield* this.#noticeChange(facts, signal);
    } catch (error) {
      if (signal.aborted) return yield this.#end('cancelled', facts, options);
      if (!facts.hasText) throw error;
      return yield this.#end('broken', facts, options, keptPart(error));
    }
    yield this.#end(facts.finish ?? 'stop', facts, options);
  }

  /** Asks until the server begins to answer; says why it has to wait. */
  async *#begin(body: object, signal: AbortSignal): AsyncGenerator<TalkEvent, IncomingMessage> {
    let told = '';
    for (;;) {
      yield WAITING;
      const response = await this.#client.post('/v1/chat/completions', body, signal);
      if (response.statusCode === 200) return response;
      const reply = await this.#client.read(response);
      const { error, again, retryMs } = refusal(reply, this.#client.base, this.#client.hasKey);
      if (again === 'never') throw error;
      if (again === 'loading') {
        this.#server = yield* whenReady(this.#client, signal, this.#clock);
        continue;
      }
      const notice = `${error.message}; asking again every ${retryMs / 1000} s, Ctrl-C gives up`;
      if (notice !== told) yield { type: 'notice', text: notice };
      told = notice;
      yield WAITING;
      await this.#clock.sleep(retryMs, signal);
    }
  }

  async *#read(response: IncomingMessage, facts: AnswerFacts): AsyncGenerator<TalkEvent, void> {
    const { base } = this.#client;
    try {
      const type = response.headers['content-type'] ?? 'no content type';
      if (!type.startsWith('text/event-stream')) throw notColibri(base, `it answers with ${type.slice(0, 100)}`);
      yield* readAnswer(response, facts, this.#clock);
    } catch (error) {
      throw this.#client.lost(error);
    } finally {
      // also when nobody wants the rest: the server stops working
      response.destroy();
    }
  }

  /** A server that was started again may compute with other numbers. */
  async *#noticeChange({ fingerprint }: AnswerFacts, signal: AbortSignal): AsyncGenerator<TalkEvent, void> {
    if (fingerprint === null || fingerprint === this.#server.fingerprint) return;
    const told = await describeServer(this.#client, signal).catch(() => null);
    this.#server = { ...this.#server, fingerprint, ...(told !== null && !('again' in told) && told) };
    yield {
      type: 'notice',
      text: 'The server now has another model or other settings: answers may differ from before.',
    };
  }

  #end(finish: TalkEnd['finish'], facts: AnswerFacts, options: AnswerOptions, error?: unknown): TalkEnd {
    const footer = attachedFooter(facts, finish, this.#server);
    const statistics = attachedStatistics(facts, options, this.#client.base, this.#server);
    return { type: 'end', finish, footer, statistics, ...(error !== undefined && { error }) };
  }
}

/** The body of a request; its fields have the names of the sampler's settings. */
export function chatBody(model: string, messages: readonly ChatMessage[], options: AnswerOptions): object {
  const { stop, seed, ...settings } = options;
  const sampling = Object.entries({ ...settings, seed }).flatMap(([name, value]) => {
    const rule = SAMPLING_RULES[name as SamplingField] as { name: string } | undefined;
    return rule && value !== undefined ? [[rule.name, value]] : [];
  });
  return {
    model,
    messages,
    ...Object.fromEntries(sampling),
    ...(stop && { stop }),
    stream: true,
    stream_options: { include_usage: true, include_progress: true },
  };
}

/** The same error, for an answer of which a part is there. */
function keptPart(error: unknown): Error {
  const { code = 'ANSWER_BROKEN', message } = error as { code?: string; message: string };
  return new RequestError(code, `the answer broke off: ${message}`, {
    hint: 'what came of it stays in the conversation, :undo takes it back',
    cause: error,
  });
}
