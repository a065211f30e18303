/** Text that arrives in pieces, for parsers written as if all of it were there: they are generators that wait for more. */

/** Yields where more text is needed (or the news that there is none). */
export type Reading<T> = Generator<undefined, T, undefined>;

const SPACE = /\S/;

/** How much of a closing tag is there; a single "<" may begin any tag. */
export type Closing = 'whole' | 'begun' | 'missing';

/**
 * Everything a parser learns of the text depends on the text alone, never on how it was cut: a decision that needs more
 * text waits for it. Surrogate pairs are kept together.
 */
export class Input {
  #text = '';
  #half = '';
  #ended = false;
  wasCut = false;
  /** What was taken since `mark`; null when nobody wants to know. */
  #taken: string[] | null = null;

  push(text: string): void {
    const all = this.#half + text;
    const last = all.charCodeAt(all.length - 1);
    const keep = last >= 0xd800 && last <= 0xdbff ? 1 : 0;
    this.#half = all.slice(all.length - keep);
    this.#text += all.slice(0, all.length - keep);
  }

  /** Everything that has come is taken. */
  get isEmpty(): boolean {
    return this.#text === '';
  }

  /** `cut`: it would have gone on. */
  end(cut = false): void {
    this.wasCut = cut;
    this.#text += this.#half;
    this.#half = '';
    this.#ended = true;
  }

  /** Remembers what is taken from here on. */
  mark(): void {
    this.#taken = [];
  }

  /** What was taken since the mark. */
  unmark(): string {
    const taken = this.#taken!.join('');
    this.#taken = null;
    return taken;
  }

  /** Puts text back in front. */
  unread(text: string): void {
    this.#text = text + this.#text;
  }

  take(length: number): string {
    const text = this.#text.slice(0, length);
    this.#text = this.#text.slice(length);
    this.#taken?.push(text);
    return text;
  }

  /** At least one character, and all that is there; '' at the end. Nothing is taken. */
  *some(): Reading<string> {
    while (this.#text === '' && !this.#ended) yield;
    return this.#text;
  }

  *atEnd(): Reading<boolean> {
    return (yield* this.some()) === '';
  }

  /** Takes white space. */
  *space(): Reading<void> {
    for (;;) {
      const text = yield* this.some();
      if (text === '') return;
      const length = text.search(SPACE);
      this.take(length < 0 ? text.length : length);
      if (length >= 0) return;
    }
  }

  /** Whether the text goes on with `tag`. Nothing is taken. */
  *sees(tag: string): Reading<boolean> {
    while (this.#text.length < tag.length && tag.startsWith(this.#text) && !this.#ended) yield;
    return this.#text.startsWith(tag);
  }

  /** Takes `tag` if the text goes on with it. */
  *literal(tag: string): Reading<boolean> {
    const found = yield* this.sees(tag);
    if (found) this.take(tag.length);
    return found;
  }

  /** Takes a closing tag, or what is there of it when the text ends; null when something else comes. */
  *closing(tag: string): Reading<Closing | null> {
    if (yield* this.literal(tag)) return 'whole';
    if (!this.#ended || !tag.startsWith(this.#text)) return null;
    return this.take(this.#text.length).length > 1 ? 'begun' : 'missing';
  }

  /** Takes white space and `tag` behind it, or nothing. */
  *spaceThen(tag: string): Reading<boolean> {
    for (;;) {
      const text = this.#text.trimStart();
      if (text.startsWith(tag)) {
        this.take(this.#text.length - text.length + tag.length);
        return true;
      }
      if (!tag.startsWith(text) || this.#ended) return false;
      yield;
    }
  }

  /** Takes characters up to one that matches `stop`, at most `most`. */
  *word(stop: RegExp, most: number): Reading<string> {
    for (;;) {
      const at = this.#text.search(stop);
      const length = at < 0 ? this.#text.length : at;
      if (at >= 0 || length >= most || this.#ended) return this.take(Math.min(length, most));
      yield;
    }
  }

  /**
   * Gives the text before the first of `tags` in parts, takes that tag and returns it; null when the text ends without one.
   * No tag may begin inside another one, unless both end together.
   */
  *until(tags: readonly string[], give: (part: string) => void): Reading<string | null> {
    for (;;) {
      const { at, tag } = first(this.#text, tags);
      if (tag !== null) {
        if (at > 0) give(this.take(at));
        return this.take(tag.length);
      }
      const keep = this.#ended ? 0 : begun(this.#text, tags);
      if (this.#text.length > keep) give(this.take(this.#text.length - keep));
      if (this.#ended) return null;
      yield;
    }
  }

  /** The text before `tags` at once; null when the text ends without one. */
  *before(...tags: string[]): Reading<string | null> {
    const parts: string[] = [];
    const tag = yield* this.until(tags, part => parts.push(part));
    return tag === null ? null : parts.join('');
  }
}

function first(text: string, tags: readonly string[]): { at: number; tag: string | null } {
  if (tags.length === 0) return { at: text.length, tag: null };
  const found = new RegExp(tags.map(tag => tag.replace(/[^\w\s]/g, '\\$&')).join('|')).exec(text);
  return found ? { at: found.index, tag: found[0] } : { at: text.length, tag: null };
}

/** Length of the longest end of `text` that may become one of `tags`. */
function begun(text: string, tags: readonly string[]): number {
  let longest = 0;
  for (const tag of tags) {
    for (let length = Math.min(tag.length - 1, text.length); length > longest; length--) {
      if (text.endsWith(tag.slice(0, length))) longest = length;
    }
  }
  return longest;
}
