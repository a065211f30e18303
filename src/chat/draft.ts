/** Calls while they are read: nobody has seen them yet, so they can still turn out to be text. */

import type { ChatPiece, ToolDefinition } from './api.ts';

/** Tools that may be called, by name. */
export type Tools = ReadonlyMap<string, ToolDefinition>;

export class CallDraft {
  readonly tools: Tools;
  /** Index of the first call within the answer. */
  readonly firstIndex: number;
  #pieces: ChatPiece[] = [];
  #count = 0;
  #arguments: string[] = [];

  constructor(tools: Tools, firstIndex: number) {
    this.tools = tools;
    this.firstIndex = firstIndex;
  }

  /** Calls that have begun. */
  get count(): number {
    return this.#count;
  }

  /** The next call begins. False when there is no such tool. */
  begin(name: string): boolean {
    if (!this.tools.has(name)) return false;
    this.#arguments = [];
    this.#pieces.push({ type: 'call', index: this.firstIndex + this.#count, name });
    this.#count++;
    return true;
  }

  /** More of the arguments' JSON text. */
  add(text: string): void {
    if (text === '') return;
    this.#arguments.push(text);
    this.#pieces.push({ type: 'arguments', index: this.firstIndex + this.#count - 1, text });
  }

  /** The call is complete. False when its arguments are no JSON object. */
  finish(): boolean {
    return isJsonObjectText(this.#arguments.join(''));
  }

  /** Hands out what has been read since the last time. */
  drain(): ChatPiece[] {
    const pieces = this.#pieces;
    this.#pieces = [];
    return pieces;
  }
}

function isJsonObjectText(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
