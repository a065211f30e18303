/** A chat with the engine of this process. */

import { InternalError, RequestError } from '../common/errors.ts';
import type { ChatMessage, Engine } from '../engine/api.ts';
import { tokenAmount } from './progress.ts';
import { answerFooter, answerStatistics } from './report.ts';
import { type StartEvent, spoken } from './spoken.ts';
import type { Talker } from './talker.ts';

export function engineTalker(engine: Engine): Talker {
  return {
    async *ask(messages, options, signal) {
      await checkRoom(engine, messages);
      let start: StartEvent | undefined;
      for await (const event of spoken(engine, { prompt: { messages }, ...options }, signal)) {
        if (event.type === 'start') {
          start = event;
          yield { type: 'progress', label: 'prefill', done: 0, total: event.promptIds.length, amount: tokenAmount };
        } else if (event.type === 'prefill') {
          yield { type: 'progress', label: 'prefill', done: event.done, total: event.total, amount: tokenAmount };
        } else if (event.type === 'text' || event.type === 'reasoning') yield { type: event.type, text: event.text };
        else {
          if (!start) throw new InternalError('NO_START', 'the engine ended an answer that it had not begun');
          const answer = { start, end: event };
          const footer = answerFooter(answer, engine.info.context);
          yield { type: 'end', finish: event.finishReason, footer, statistics: answerStatistics(answer) };
        }
      }
    },
  };
}

async function checkRoom(engine: Engine, messages: readonly ChatMessage[]): Promise<void> {
  const { context, maxContext } = engine.info;
  const needed = (await engine.encode({ messages })).length;
  if (needed < context) return;
  const larger = context < maxContext ? `, or start again with --ctx ${Math.min(maxContext, 2 * context)}` : '';
  throw new RequestError(
    'CONTEXT_FULL',
    `this does not fit: the conversation with this message has ${needed} tokens, and the context of ${context} must hold ` +
      'the answer too; the message was not sent and the conversation is kept',
    {
      hint: `take turns back with :undo, forget all with :reset, shorten the message${larger}`,
      details: { needed, context },
    },
  );
}
