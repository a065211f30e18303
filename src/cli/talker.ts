/** Who answers in a chat: the engine of this process, or a server. Types only. */

import type { ChatMessage, GenerateRequest } from '../engine/api.ts';
import type { Amount } from './progress.ts';

/** What the flags say about an answer. */
export type AnswerOptions = Omit<GenerateRequest, 'prompt'>;

export type TalkEvent =
  /** How far something is that is awaited. etaMs: what remains of it by whoever knows better; null: nobody can tell. */
  | { type: 'progress'; label: string; done: number; total: number; amount: Amount; etaMs?: number | null }
  /** A line for the user about what happens. */
  | { type: 'notice'; text: string }
  /** What the model thinks before it answers. */
  | { type: 'reasoning'; text: string }
  | { type: 'text'; text: string }
  | TalkEnd;

export interface TalkEnd {
  type: 'end';
  /** `broken`: what came is all that there will be, and `error` says why. */
  finish: 'stop' | 'length' | 'cancelled' | 'broken';
  error?: unknown;
  /** The figures under the answer. */
  footer: string;
  /** All that is known about it. */
  statistics: string;
}

export interface Talker {
  /**
   * Answers the last of the messages: events, the last of which is `end`. Throws what went wrong before anything of the answer
   * was there. Aborting the signal ends it with `cancelled`, and stops whoever computes.
   */
  ask(messages: readonly ChatMessage[], options: AnswerOptions, signal: AbortSignal): AsyncIterable<TalkEvent>;
}
