/** The messages of a chat: what was said, what is taken back. */

import type { ChatMessage } from '../engine/api.ts';

export class Conversation {
  readonly #system: readonly ChatMessage[];
  #turns: (readonly [question: string, answer: ChatMessage])[] = [];

  constructor(system: string | undefined) {
    this.#system = system === undefined ? [] : [{ role: 'system', content: system }];
  }

  get turns(): number {
    return this.#turns.length;
  }

  /** All messages, with `question` as the next one. */
  messages(question: string): ChatMessage[] {
    const said = this.#turns.flatMap(([user, answer]) => [{ role: 'user', content: user }, answer]);
    return [...this.#system, ...said, { role: 'user', content: question }];
  }

  /** `reasoning`: what came before the answer, where it is told apart from it. */
  add(question: string, answer: string, reasoning = ''): void {
    const thought = reasoning === '' ? {} : { reasoning_content: reasoning };
    this.#turns.push([question, { role: 'assistant', content: answer, ...thought }]);
  }

  /** Forgets the last turn; false when there is none. */
  undo(): boolean {
    return this.#turns.pop() !== undefined;
  }

  reset(): void {
    this.#turns = [];
  }
}
