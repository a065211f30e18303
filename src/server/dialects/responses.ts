/** The OpenAI Responses API: POST /v1/responses. Nothing is kept between requests. */

import { randomUUID } from 'node:crypto';
import type { App, Dialect, DialectContext } from '../dialect.ts';
import { turnErrors } from '../schemas.ts';
import type { Frame } from '../sse.ts';
import type { TurnEvent } from '../turn.ts';
import { parseBody } from './openai-body.ts';
import { DONE } from './openai-chat.ts';
import { unfinished } from './openai-chat-reply.ts';
import { type ResponseEvent, ResponseWriter } from './responses-events.ts';
import { ResponseObject } from './responses-object.ts';
import { RESPONSES_UNSUPPORTED, responsesTurn } from './responses-request.ts';
import { ResponsesBody } from './responses-schema.ts';
import { bodyParser } from './route-body.ts';

const parseResponses = (body: unknown) => parseBody(ResponsesBody, body, RESPONSES_UNSUPPORTED);
const nowSeconds = () => Math.floor(Date.now() / 1000);

export const responsesDialect: Dialect = {
  name: 'OpenAI responses',
  routes(app: App, context: DialectContext): void {
    const schema = {
      operationId: 'createResponse',
      summary: 'Answer an input',
      description: 'With stream: server-sent events named by their type, numbered from 0, then [DONE].',
      body: ResponsesBody,
      response: { 200: ResponseObject, ...turnErrors },
    };
    app.post('/v1/responses', { schema, validatorCompiler: bodyParser(parseResponses) }, async (request, reply) => {
      const { body } = request;
      const head = {
        id: `resp_${randomUUID().replaceAll('-', '')}`,
        model: context.requireModel(body.model),
        createdAt: nowSeconds(),
        body,
      };
      const turn = responsesTurn(body, context.client(request, body.user ?? undefined));
      const runner = context.runner();
      const writer = new ResponseWriter(head, nowSeconds);
      if (!body.stream) return context.whole(reply, signal => collect(runner.run(turn, signal), writer));
      await context.stream(request, reply, signal => frames(runner.run(turn, signal), writer), {
        errorFrames: error => writer.failure(error).map(frame),
      });
      return reply;
    });
  },
};

async function collect(turn: AsyncIterable<TurnEvent>, writer: ResponseWriter): Promise<ResponseObject> {
  for await (const event of turn) writer.events(event);
  if (writer.result === null) throw unfinished();
  return writer.result;
}

async function* frames(turn: AsyncIterable<TurnEvent>, writer: ResponseWriter): AsyncGenerator<Frame> {
  for await (const event of turn) {
    for (const item of writer.events(event)) yield frame(item);
    if (event.type === 'end') return yield DONE;
  }
  throw unfinished();
}

function frame(event: ResponseEvent): Frame {
  return { event: event.type, data: JSON.stringify(event) };
}
