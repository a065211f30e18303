/** The Anthropic Messages API: POST /v1/messages and /v1/messages/count_tokens. */

import { randomUUID } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Dialect, DialectContext } from '../dialect.ts';
import type { HttpError } from '../errors.ts';
import type { Frame } from '../sse.ts';
import { type AnthropicEvent, type AnthropicOptions, messageEvents } from './anthropic-events.ts';
import { collectMessage } from './anthropic-message.ts';
import { ANTHROPIC_UNSUPPORTED, COUNT_UNSUPPORTED, messageTurn, promptTurn } from './anthropic-request.ts';
import {
  AnthropicErrorReply,
  AnthropicMessage,
  AnthropicMessageBody,
  AnthropicPromptBody,
  AnthropicTokenCount,
} from './anthropic-schema.ts';
import { parseBody } from './openai-body.ts';
import { bodyParser } from './route-body.ts';

const errorReplies = Object.fromEntries(
  [400, 401, 403, 404, 413, 415, 429, 500, 503].map(status => [status, AnthropicErrorReply]),
) as Record<400 | 401, typeof AnthropicErrorReply>;

export const anthropicDialect: Dialect = {
  name: 'Anthropic Messages',
  errorBody: anthropicErrorBody,
  speaks: ({ url, headers }) => 'anthropic-version' in headers || /^\/v1\/messages(?![^/?])/.test(url),
  routes(app, context) {
    // where Anthropic's clients look for it
    app.addHook('onSend', async (request, reply) => {
      reply.header('request-id', request.id);
    });
    const messages = {
      operationId: 'createMessage',
      summary: 'The next message of a conversation, whole or as a stream of named events',
      body: AnthropicMessageBody,
      response: { 200: AnthropicMessage, ...errorReplies },
    };
    app.post('/v1/messages', { schema: messages, validatorCompiler: bodyParser(parseMessage) }, (request, reply) =>
      answer(context, request, reply, request.body),
    );
    const count = {
      operationId: 'countMessageTokens',
      summary: 'How many tokens the prompt of such a message has, exactly',
      body: AnthropicPromptBody,
      response: { 200: AnthropicTokenCount, ...errorReplies },
    };
    app.post(
      '/v1/messages/count_tokens',
      { schema: count, validatorCompiler: bodyParser(parsePrompt) },
      async request => {
        context.requireModel(request.body.model);
        return { input_tokens: await context.runner().countTokens(promptTurn(request.body)) };
      },
    );
  },
};

const parseMessage = (body: unknown) => parseBody(AnthropicMessageBody, body, ANTHROPIC_UNSUPPORTED);
const parsePrompt = (body: unknown) => parseBody(AnthropicPromptBody, body, COUNT_UNSUPPORTED);

async function answer(
  context: DialectContext,
  request: FastifyRequest,
  reply: FastifyReply,
  body: AnthropicMessageBody,
) {
  const options: AnthropicOptions = {
    id: `msg_${randomUUID().replaceAll('-', '')}`,
    model: context.requireModel(body.model),
    hideThinking: body.thinking?.type !== 'disabled' && body.thinking?.display === 'omitted',
  };
  const turn = messageTurn(body, context.client(request, body.metadata?.user_id ?? undefined));
  const runner = context.runner();
  const events = (signal: AbortSignal) => messageEvents(runner.run(turn, signal), options);
  if (!body.stream) return context.whole(reply, signal => collectMessage(events(signal)));
  reply.header('request-id', request.id);
  await context.stream(request, reply, signal => frames(events(signal)), {
    errorFrames: error => [{ event: 'error', data: JSON.stringify(anthropicErrorBody(error, request.id)) }],
    keepalive: frame({ type: 'ping' }),
  });
  return reply;
}

async function* frames(events: AsyncIterable<AnthropicEvent>): AsyncGenerator<Frame> {
  for await (const event of events) yield frame(event);
}

function frame(event: AnthropicEvent): Frame {
  return { event: event.type, data: JSON.stringify(event) };
}

const ERROR_TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
};

/** An error in Anthropic's words. */
export function anthropicErrorBody({ status, message }: HttpError, requestId: string) {
  const type = ERROR_TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error');
  return { type: 'error', error: { type, message }, request_id: requestId };
}
