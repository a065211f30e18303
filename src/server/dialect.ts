/** What a dialect (OpenAI chat, Anthropic messages, ...) is, and what the server gives it. */

import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyBaseLogger, FastifyInstance, FastifyReply, FastifyRequest, RawServerDefault } from 'fastify';
import type { ZodTypeProvider } from 'fastify-type-provider-zod';
import type { HttpError } from './errors.ts';
import type { ServerSettings } from './settings.ts';
import type { Frame, StreamOptions } from './sse.ts';
import type { TurnRunner } from './turn.ts';

/** A Fastify instance whose routes have zod schemas. */
export type App = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  ZodTypeProvider
>;

/** A group of routes that speak one API. */
export interface Dialect {
  /** Heading of its routes in the OpenAPI document. */
  readonly name: string;
  /** The body of an error on its routes, also of those that come before a handler runs (401, 415, a wrong field). Default: OpenAI's. */
  readonly errorBody?: (error: HttpError, requestId: string) => unknown;
  /** Whether a request that reaches none of its routes (a 404, a list of models) is from a client of this API. */
  readonly speaks?: (request: FastifyRequest) => boolean;
  /** Adds its routes; each has a summary and schemas of its body and replies. */
  routes(app: App, context: DialectContext): void;
}

export interface DialectContext {
  readonly settings: ServerSettings;
  /** Throws MODEL_LOADING or MODEL_FAILED (503) until the model is there: call it in the handler. */
  runner(): TurnRunner;
  /** Throws MODEL_NOT_FOUND (404) unless `model` is missing, empty or a name that is served. Returns the id to answer with. */
  requireModel(model: string | null | undefined): string;
  /** Whose turn it is in the queue, for TurnRequest.client; `user` is what the body says of itself. */
  client(request: FastifyRequest, user?: string): string;
  /**
   * Answers with server-sent events: `await context.stream(request, reply, signal => frames(runner.run(turn, signal)), ...)`, then
   * `return reply`. Errors before the first frame are thrown, so yield that one when `accepted` comes, not before.
   */
  stream(
    request: FastifyRequest,
    reply: FastifyReply,
    makeFrames: (signal: AbortSignal) => AsyncIterable<Frame>,
    options: StreamOptions,
  ): Promise<void>;
  /** Runs work for an answer in one piece: the signal aborts when the client goes away or the server stops. */
  whole<T>(reply: FastifyReply, work: (signal: AbortSignal) => Promise<T>): Promise<T>;
}
