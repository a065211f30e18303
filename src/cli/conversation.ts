/** The messages of a chat: what was said, what is taken back. */

import type { ChatMessage } from '../engine/api.ts';

export class Conversation {
  readonly #system: readonly ChatMessage[];
  #turns: (readonly [question: string, answer: string])[] = [];

  constructor(system: string | undefined) {
    this.#system = system === undefined ? [] : [{ role: 'system', content: system }];
  }

  get turns(): number {
    return this.#turns.length;
  }

  /** All messages, with `question` as the next one. */
  messages(question: string): ChatMessage[] {
    const said = this.#turns.flatMap(([user, assistant]) => [
      { role: 'user', content: user },
      { role: 'assistant', content: assistant },
    ]);
    return [...this.#system, ...said, { role: 'user', content: question }];
  }

  add(question: string, answer: string): void {
    this.#turns.push([question, answer]);
  }

  /** Forgets the last turn; false when there is none. */
  undo(): boolean {
    return this.#turns.pop() !== undefined;
  }

  reset(): void {
    this.#turns = [];
  }
}
