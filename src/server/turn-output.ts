/** From the tokens of an answer to the events of its turn: pieces, stop strings, call ids, usage. */

import { randomBytes } from 'node:crypto';
import type { ChatParser, ChatPiece } from '../chat/api.ts';
import type { GenerateEvent } from '../engine/api.ts';
import type { StopMatcher } from '../engine/stops.ts';
import type { TurnEvent, TurnFinish } from './turn.ts';
import { LogprobQueue } from './turn-logprobs.ts';

type TokenEvent = Extract<GenerateEvent, { type: 'token' }>;
type EndEvent = Extract<GenerateEvent, { type: 'end' }>;

export interface OutputOptions {
  readonly parser: ChatParser;
  /** Looks for stop strings in the visible text; null: nobody does here. */
  readonly stops: StopMatcher | null;
  readonly parallelToolCalls: boolean;
  tokenBytes(id: number): Uint8Array;
  /** Likeliest tokens that the client wants to see beside each chosen one. */
  readonly topLogprobs?: number;
}

export class TurnOutput {
  readonly #parser: ChatParser;
  readonly #stops: StopMatcher | null;
  readonly #parallel: boolean;
  readonly #logprobs: LogprobQueue;
  #calls = 0;
  /** Arguments of the last call, as far as they have been given. */
  #arguments = '';
  #isDone = false;
  completionTokens = 0;
  reasoningTokens = 0;

  constructor({ parser, stops, parallelToolCalls, tokenBytes, topLogprobs }: OutputOptions) {
    this.#parser = parser;
    this.#stops = stops;
    this.#parallel = parallelToolCalls;
    this.#logprobs = new LogprobQueue(tokenBytes, topLogprobs !== 0);
  }

  /** Nothing more will be given: a stop string was found, or the one call is there that the client wants. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** The answer so far ends inside its reasoning. */
  get inReasoning(): boolean {
    return this.#parser.inReasoning;
  }

  *push({ text, marker, logprobs }: TokenEvent): Generator<TurnEvent> {
    this.completionTokens++;
    if (logprobs) this.#logprobs.add(text + (marker ?? ''), logprobs);
    const before = this.#parser.inReasoning;
    const pieces = this.#parser.push(text, marker);
    if (before || this.#parser.inReasoning) this.reasoningTokens++;
    yield* this.#translate(pieces, logprobs !== undefined);
  }

  /** The answer has ended; `isCut`: by its length. */
  *end(isCut: boolean, wantsLogprobs: boolean): Generator<TurnEvent> {
    if (this.#isDone) return;
    yield* this.#translate(this.#parser.end(isCut), wantsLogprobs);
    if (!this.#isDone) yield* this.#visible(this.#stops?.flush() ?? '', wantsLogprobs);
  }

  /** How the turn ended. A call that is not whole is the token limit's doing. */
  finish(end: EndEvent | null): { finish: TurnFinish; stopSequence: string | null } {
    const stopSequence = this.#stops?.matched ?? (typeof end?.stopReason === 'string' ? end.stopReason : null);
    if (this.#calls > 0) return { finish: isWhole(this.#arguments) ? 'tool_calls' : 'length', stopSequence };
    return { finish: end?.finishReason === 'length' && stopSequence === null ? 'length' : 'stop', stopSequence };
  }

  *#translate(pieces: readonly ChatPiece[], wantsLogprobs: boolean): Generator<TurnEvent> {
    for (const piece of pieces) {
      if (this.#isDone) return;
      if (piece.type === 'text') {
        const step = this.#stops?.push(piece.text) ?? { emit: piece.text, matched: null };
        if (step.matched !== null) this.#isDone = true;
        yield* this.#visible(step.emit, wantsLogprobs);
        continue;
      }
      // no stop string reaches across reasoning and calls
      yield* this.#visible(this.#stops?.flush() ?? '', wantsLogprobs);
      if (piece.type === 'reasoning') yield this.#withLogprobs(piece, wantsLogprobs);
      else yield* this.#call(piece);
    }
  }

  *#call(piece: Extract<ChatPiece, { type: 'call' | 'arguments' }>): Generator<TurnEvent> {
    this.#logprobs.skip();
    if (piece.type === 'arguments') {
      this.#arguments += piece.text;
      yield piece;
    } else if (!this.#parallel && this.#calls === 1) {
      this.#isDone = true;
    } else {
      this.#calls++;
      this.#arguments = '';
      yield { ...piece, id: callId() };
    }
  }

  *#visible(text: string, wantsLogprobs: boolean): Generator<TurnEvent> {
    if (text !== '') yield this.#withLogprobs({ type: 'text', text }, wantsLogprobs);
  }

  #withLogprobs(piece: { type: 'text' | 'reasoning'; text: string }, wantsLogprobs: boolean): TurnEvent {
    return wantsLogprobs ? { ...piece, logprobs: this.#logprobs.take(piece.text) } : piece;
  }
}

/** Unique across turns, in the form that clients know. */
export function callId(): string {
  return `call_${randomBytes(12).toString('hex')}`;
}

function isWhole(json: string): boolean {
  try {
    JSON.parse(json);
    return true;
  } catch {
    return false;
  }
}
