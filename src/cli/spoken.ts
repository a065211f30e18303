/** Answers of the engine taken apart: what a model thinks is not what it says. */

import type { ChatPiece } from '../chat/api.ts';
import { chooseFormat } from '../chat/formats.ts';
import type { Engine, GenerateEvent, GenerateRequest } from '../engine/api.ts';
import { StopMatcher } from '../engine/stops.ts';
import { answerStart } from '../server/turn-prepare.ts';

export type StartEvent = Extract<GenerateEvent, { type: 'start' }>;
/** `text`: all that was said; `reasoning`: all that was thought, missing where the model does not reason aloud. */
export type EndEvent = Extract<GenerateEvent, { type: 'end' }> & { readonly reasoning?: string };

export type SpokenEvent =
  | StartEvent
  | Extract<GenerateEvent, { type: 'prefill' }>
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  | EndEvent;

/** Generates. A text that is continued is given as it comes. */
export async function* spoken(
  engine: Engine,
  request: GenerateRequest,
  signal: AbortSignal,
): AsyncGenerator<SpokenEvent, void, undefined> {
  const format = chooseFormat(engine.text);
  const { prompt, stop = [], ...options } = request;
  if (!('messages' in prompt) || format.reasoning === null) {
    for await (const event of engine.generate(request, signal)) {
      if (event.type === 'token') yield { type: 'text', text: event.text };
      else yield event;
    }
    return;
  }
  const plain = { tools: [], toolChoice: 'none' } as const;
  let parser = format.parser({ ...plain, startsInReasoning: false });
  const said = new Said(stop);
  const order = { ...options, prompt, markers: format.markers };
  for await (const event of engine.generate(order, AbortSignal.any([signal, said.enough]))) {
    switch (event.type) {
      case 'start':
        parser = format.parser({ ...plain, ...(await answerStart(engine, { prompt, ...format }, event.promptIds)) });
        yield event;
        break;
      case 'prefill':
        yield event;
        break;
      case 'token':
        yield* said.add(parser.push(event.text, event.marker));
        break;
      case 'end':
        yield* said.add(parser.end(event.finishReason === 'length'));
        yield* said.rest();
        yield said.end(event);
    }
  }
}

/** What has been said and thought. Stop strings mean nothing in what is thought, so the engine does not look for them. */
class Said {
  readonly #stops: StopMatcher;
  readonly #enough = new AbortController();
  #text = '';
  #reasoning = '';

  constructor(stop: readonly string[]) {
    this.#stops = new StopMatcher(stop);
  }

  /** Aborts when a stop string was found. */
  get enough(): AbortSignal {
    return this.#enough.signal;
  }

  *add(pieces: readonly ChatPiece[]): Generator<SpokenEvent> {
    for (const piece of pieces) {
      if (this.enough.aborted) return;
      if (piece.type === 'reasoning') {
        this.#reasoning += piece.text;
        yield { type: 'reasoning', text: piece.text };
      } else if (piece.type === 'text') {
        const { emit, matched } = this.#stops.push(piece.text);
        if (matched !== null) this.#enough.abort();
        yield* this.#say(emit);
      }
    }
  }

  /** What was held back because a stop string could have begun. */
  *rest(): Generator<SpokenEvent> {
    if (!this.enough.aborted) yield* this.#say(this.#stops.flush());
  }

  end(event: Extract<GenerateEvent, { type: 'end' }>): EndEvent {
    const { matched } = this.#stops;
    const stopped = matched === null ? {} : { finishReason: 'stop' as const, stopReason: matched };
    return { ...event, ...stopped, text: this.#text, reasoning: this.#reasoning };
  }

  *#say(text: string): Generator<SpokenEvent> {
    this.#text += text;
    if (text !== '') yield { type: 'text', text };
  }
}
