/** An assistant's message that is not finished: where it ends in the rendered text. */

import { RequestError } from '../common/errors.ts';

/**
 * A character that occurs nowhere else is put behind the content, with a space behind it, which a template that trims messages
 * takes away: then it would have trimmed the content's own end too.
 */
export class FinalMessage {
  readonly #mark: string;
  readonly #content: string;

  /** Throws RequestError when the last message cannot be continued. */
  constructor(messages: readonly unknown[], mark: string) {
    const { role, content } = (messages.at(-1) ?? {}) as { role?: unknown; content?: unknown };
    const refuse = (what: string) =>
      new RequestError('NOTHING_TO_CONTINUE', `the last message cannot be continued: ${what}`, {
        hint: 'let the last message be an assistant’s with a text',
        details: { parameter: 'messages' },
      });
    if (role !== 'assistant') throw refuse('it is not an assistant’s');
    if (typeof content !== 'string') throw refuse('its content is no text');
    this.#mark = mark;
    this.#content = content;
  }

  /** The masked messages with the mark. */
  mark(masked: readonly unknown[]): unknown[] {
    const last = masked.at(-1) as { content: string };
    return [...masked.slice(0, -1), { ...last, content: `${last.content}${this.#mark} ` }];
  }

  /** The rendered text up to the end of the content, as the template writes it. */
  cut(rendered: string): string {
    const at = rendered.lastIndexOf(this.#mark);
    if (at < 0) {
      throw new RequestError('CONTENT_NOT_FOUND', 'the chat template does not show the content of the last message', {
        hint: 'let the last message be the user’s: this template has no place where an answer could go on',
        details: { parameter: 'messages' },
      });
    }
    const before = rendered.slice(0, at);
    const isTrimmed = rendered[at + 1] !== ' ';
    const spaces = this.#content.length - this.#content.trimEnd().length;
    // of a content of nothing but spaces the template has taken the front, which was all of it
    if (!isTrimmed || spaces === 0 || spaces === this.#content.length) return before;
    return before.endsWith(this.#content.slice(-spaces)) ? before.slice(0, -spaces) : before;
  }
}
