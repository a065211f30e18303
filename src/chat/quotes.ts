/** Where a text quotes code: there, a call is an example and not meant. */

/** Characters of a line that are looked at for a fence; longer lines are none. */
const MAX_FENCE_LINE = 200;

/** Code in the sense of Markdown: a fenced block, or backticks inside a line. Given a text in parts. */
export class Quotes {
  /** The fence that closes the block in which the text is. */
  #fence: string | null = null;
  #line = '';
  #ticks = 0;

  /** Whether what comes next is code. */
  get inside(): boolean {
    return this.#fence !== null || this.#ticks % 2 === 1 || openingFence(this.#line) !== null;
  }

  see(part: string): void {
    const lines = part.split('\n');
    for (const [i, text] of lines.entries()) {
      if (i > 0) this.#endLine();
      if (this.#line.length <= MAX_FENCE_LINE) this.#line += text;
      for (let at = text.indexOf('`'); at >= 0; at = text.indexOf('`', at + 1)) this.#ticks++;
    }
  }

  #endLine(): void {
    if (this.#fence === null) this.#fence = openingFence(this.#line);
    else if (closes(this.#line.trim(), this.#fence)) this.#fence = null;
    this.#line = '';
    this.#ticks = 0;
  }
}

function openingFence(line: string): string | null {
  return /^\s*(`{3,}|~{3,})/.exec(line)?.[1] ?? null;
}

/** Nothing but the fence's own character, at least as often. */
function closes(line: string, fence: string): boolean {
  return line.length >= fence.length && line.length <= MAX_FENCE_LINE && line === fence[0].repeat(line.length);
}
