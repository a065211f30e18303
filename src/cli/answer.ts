/** One generation from request to end, with the text handed on as it comes. */

import { InternalError } from '../common/errors.ts';
import type { Engine, GenerateEvent, GenerateRequest } from '../engine/api.ts';
import { type Progress, tokenAmount } from './progress.ts';

export type StartEvent = Extract<GenerateEvent, { type: 'start' }>;
export type EndEvent = Extract<GenerateEvent, { type: 'end' }>;

export interface Answer {
  readonly start: StartEvent;
  readonly end: EndEvent;
}

export interface AnswerSink {
  onText: (text: string) => void;
  progress: Progress | null;
}

export async function streamAnswer(
  engine: Engine,
  request: GenerateRequest,
  signal: AbortSignal,
  { onText, progress }: AnswerSink,
): Promise<Answer> {
  let start: StartEvent | undefined;
  let end: EndEvent | undefined;
  try {
    for await (const event of engine.generate(request, signal)) {
      if (event.type === 'start') {
        start = event;
        progress?.update('prefill', 0, event.promptIds.length, tokenAmount);
      } else if (event.type === 'prefill') progress?.update('prefill', event.done, event.total, tokenAmount);
      else {
        progress?.clear();
        // the texts of the tokens joined are the text of the end
        if (event.type === 'end') end = event;
        else onText(event.text);
      }
    }
  } finally {
    progress?.clear();
  }
  if (!start || !end) throw new InternalError('NO_END', 'the engine ended an answer without saying so');
  return { start, end };
}
