/** POST /v1/chat/completions: a conversation in, an answer out, whole or in chunks. */

import { randomUUID } from 'node:crypto';
import type { App, Dialect, DialectContext } from '../dialect.ts';
import { type HttpError, openAiErrorBody } from '../errors.ts';
import { turnErrors } from '../schemas.ts';
import type { Frame } from '../sse.ts';
import type { TurnEvent, TurnRunner } from '../turn.ts';
import { ChatReply, collectChat, type ReplyHead, unfinished } from './openai-chat-reply.ts';
import { ChatBody, chatTurn, parseChat } from './openai-chat-request.ts';
import { type ChatChunk, ChatStream } from './openai-chat-stream.ts';
import { bodyParser } from './route-body.ts';

export const openAiChat: Dialect = {
  name: 'OpenAI chat completions',
  routes(app: App, context: DialectContext): void {
    const schema = {
      operationId: 'createChatCompletion',
      summary: 'Answer a conversation',
      description: 'With stream: server-sent events with chat.completion.chunk objects, then [DONE].',
      body: ChatBody,
      response: { 200: ChatReply, ...turnErrors },
    };
    app.post('/v1/chat/completions', { schema, validatorCompiler: bodyParser(parseChat) }, async (request, reply) => {
      const { body } = request;
      const model = context.requireModel(body.model);
      const turn = chatTurn(body, context.client(request, body.user ?? undefined));
      const runner = context.runner();
      const head = replyHead('chatcmpl-', model, runner);
      if (!body.stream) {
        return context.whole(reply, signal => collectChat(runner.run(turn, signal), head, turn.logprobs !== undefined));
      }
      const options = body.stream_options ?? {};
      const stream = new ChatStream(head, {
        usage: options.include_usage ?? false,
        progress: options.include_progress ?? false,
      });
      const frames = (signal: AbortSignal) => chatFrames(runner.run(turn, signal), stream);
      await context.stream(request, reply, frames, { errorFrames });
      return reply;
    });
  },
};

/** What identifies an answer. */
export function replyHead(prefix: string, model: string, { fingerprint }: TurnRunner): ReplyHead {
  return {
    id: prefix + randomUUID().replaceAll('-', ''),
    created: Math.floor(Date.now() / 1000),
    model,
    system_fingerprint: fingerprint,
  };
}

/** An error after the start of a stream, which ends behind it, without [DONE]. */
export function errorFrames(error: HttpError): Frame[] {
  return [{ data: JSON.stringify(openAiErrorBody(error)) }];
}

export const DONE: Frame = { data: '[DONE]' };

async function* chatFrames(
  events: AsyncIterable<TurnEvent>,
  stream: { chunks(event: TurnEvent): ChatChunk[] },
): AsyncGenerator<Frame> {
  for await (const event of events) {
    for (const chunk of stream.chunks(event)) yield { data: JSON.stringify(chunk) };
    if (event.type === 'end') return yield DONE;
  }
  throw unfinished();
}
