/** POST /v1/completions: texts in, their continuations out. Several prompts run one after the other, if all of them can run. */

import type { App, Dialect, DialectContext } from '../dialect.ts';
import { turnErrors } from '../schemas.ts';
import type { Frame } from '../sse.ts';
import type { TurnRequest, TurnRunner } from '../turn.ts';
import { DONE, errorFrames, replyHead } from './openai-chat.ts';
import { type ReplyHead, unfinished } from './openai-chat-reply.ts';
import { type CompletionChunk, CompletionReply, CompletionStream, joinChoices } from './openai-completions-reply.ts';
import { CompletionBody, completionTurns, parseCompletion } from './openai-completions-request.ts';
import { bodyParser } from './route-body.ts';

export const openAiCompletions: Dialect = {
  name: 'OpenAI completions',
  routes(app: App, context: DialectContext): void {
    const schema = {
      operationId: 'createCompletion',
      summary: 'Continue texts',
      description: 'With stream: server-sent events with text_completion objects, then [DONE].',
      body: CompletionBody,
      response: { 200: CompletionReply, ...turnErrors },
    };
    app.post('/v1/completions', { schema, validatorCompiler: bodyParser(parseCompletion) }, async (request, reply) => {
      const { body } = request;
      const model = context.requireModel(body.model);
      const turns = completionTurns(body, context.client(request, body.user ?? undefined));
      const runner = context.runner();
      const head = replyHead('cmpl-', model, runner);
      const { include_usage, include_progress } = body.stream_options ?? {};
      const stream = new CompletionStream(head, {
        usage: include_usage ?? false,
        progress: include_progress ?? false,
        logprobs: body.logprobs != null,
      });
      const chunks = (signal: AbortSignal) => completionChunks(runner, turns, stream, signal);
      if (!body.stream) return context.whole(reply, signal => collectCompletion(chunks(signal), head, stream));
      await context.stream(request, reply, signal => completionFrames(chunks(signal)), { errorFrames });
      return reply;
    });
  },
};

async function* completionChunks(
  runner: TurnRunner,
  turns: readonly TurnRequest[],
  stream: CompletionStream,
  signal: AbortSignal,
): AsyncGenerator<CompletionChunk> {
  if (turns.length > 1) for (const turn of turns) await runner.check(turn, signal);
  for (const [index, turn] of turns.entries()) {
    let ended = false;
    for await (const event of runner.run(turn, signal)) {
      ended = event.type === 'end';
      yield* stream.chunks(index, event);
    }
    if (!ended) throw unfinished();
  }
  yield* stream.end();
}

async function* completionFrames(chunks: AsyncIterable<CompletionChunk>): AsyncGenerator<Frame> {
  for await (const chunk of chunks) yield { data: JSON.stringify(chunk) };
  yield DONE;
}

async function collectCompletion(
  chunks: AsyncIterable<CompletionChunk>,
  head: ReplyHead,
  stream: CompletionStream,
): Promise<CompletionReply> {
  const pieces: CompletionChunk['choices'] = [];
  for await (const chunk of chunks) pieces.push(...chunk.choices);
  const byPrompt = Map.groupBy(pieces, piece => piece.index);
  return { ...head, object: 'text_completion', choices: [...byPrompt.values()].map(joinChoices), usage: stream.usage };
}
