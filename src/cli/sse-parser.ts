/** Server-sent events out of a stream of bytes, however it is cut. */

import { RequestError } from '../common/errors.ts';

/** Of one line, and of the data of one event: an event carries a few letters of an answer, so more is no answer of a server's. */
export const MAX_EVENT_CHARACTERS = 1024 * 1024;

export interface SseEvent {
  /** "message" where the stream names none. */
  readonly event: string;
  /** Lines of data, joined by line feeds. */
  readonly data: string;
}

/** Takes bytes as they come; an event is given when the empty line after it is there. What is incomplete at the end is nothing. */
export class SseParser {
  readonly #decoder = new TextDecoder('utf-8', { fatal: true });
  #line = '';
  /** The last character was a carriage return: a line feed that follows belongs to it. */
  #afterReturn = false;
  #event = '';
  #data: string[] = [];
  #dataCharacters = 0;

  /** Throws BAD_STREAM for what is not UTF-8 and for lines and events beyond the limit. */
  push(bytes: Uint8Array): SseEvent[] {
    let text = this.#decode(bytes);
    if (text === '') return [];
    if (this.#afterReturn && text[0] === '\n') text = text.slice(1);
    this.#afterReturn = text === '' ? false : text.endsWith('\r');
    const events: SseEvent[] = [];
    const [rest, ...starts] = text.split(/\r\n|\r|\n/);
    this.#grow(rest);
    for (const start of starts) {
      const event = this.#endLine();
      if (event) events.push(event);
      this.#grow(start);
    }
    return events;
  }

  #decode(bytes: Uint8Array): string {
    try {
      return this.#decoder.decode(bytes, { stream: true });
    } catch (cause) {
      throw badStream('has bytes that are not UTF-8', cause);
    }
  }

  #grow(text: string): void {
    this.#line += text;
    if (this.#line.length > MAX_EVENT_CHARACTERS) throw badStream('has a line that is too long');
  }

  #endLine(): SseEvent | null {
    const line = this.#line;
    this.#line = '';
    if (line === '') return this.#dispatch();
    // a colon first makes a comment: its field has no name
    const [, field, value] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) as RegExpExecArray;
    if (field === 'event') this.#event = value ?? '';
    if (field === 'data') this.#addData(value ?? '');
    return null;
  }

  #addData(text: string): void {
    this.#data.push(text);
    this.#dataCharacters += text.length + 1;
    if (this.#dataCharacters > MAX_EVENT_CHARACTERS) throw badStream('has an event that is too long');
  }

  #dispatch(): SseEvent | null {
    const event = this.#data.length > 0 ? { event: this.#event || 'message', data: this.#data.join('\n') } : null;
    this.#event = '';
    this.#data = [];
    this.#dataCharacters = 0;
    return event;
  }
}

function badStream(what: string, cause?: unknown): RequestError {
  return new RequestError('BAD_STREAM', `the server's answer ${what}`, { cause });
}
