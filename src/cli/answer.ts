/** One generation from request to end, with the text handed on as it comes. */

import { InternalError } from '../common/errors.ts';
import type { Engine, GenerateRequest } from '../engine/api.ts';
import { type Progress, tokenAmount } from './progress.ts';
import { type EndEvent, type StartEvent, spoken } from './spoken.ts';

export type { EndEvent, StartEvent } from './spoken.ts';

export interface Answer {
  readonly start: StartEvent;
  readonly end: EndEvent;
}

export interface AnswerSink {
  onText: (text: string) => void;
  onReasoning: (text: string) => void;
  progress: Progress | null;
}

export async function streamAnswer(
  engine: Engine,
  request: GenerateRequest,
  signal: AbortSignal,
  { onText, onReasoning, progress }: AnswerSink,
): Promise<Answer> {
  let start: StartEvent | undefined;
  let end: EndEvent | undefined;
  try {
    for await (const event of spoken(engine, request, signal)) {
      if (event.type === 'start') {
        start = event;
        progress?.update('prefill', 0, event.promptIds.length, tokenAmount);
      } else if (event.type === 'prefill') progress?.update('prefill', event.done, event.total, tokenAmount);
      else {
        progress?.clear();
        if (event.type === 'end') end = event;
        else if (event.type === 'reasoning') onReasoning(event.text);
        else onText(event.text);
      }
    }
  } finally {
    progress?.clear();
  }
  if (!start || !end) throw new InternalError('NO_END', 'the engine ended an answer without saying so');
  return { start, end };
}
