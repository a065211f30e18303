/** Prefix tree over UTF-16 code units: finds which of many strings stand at a position of a text. */

interface Node {
  next: Map<number, Node> | null;
  /** Index of the string that ends here, or -1. */
  string: number;
}

export class Trie {
  readonly #root: Node = { next: null, string: -1 };
  /** Length of the longest string. */
  readonly maxLength: number;

  constructor(strings: readonly string[]) {
    let maxLength = 0;
    strings.forEach((text, index) => {
      let node = this.#root;
      for (let i = 0; i < text.length; i++) {
        node.next ??= new Map();
        const unit = text.charCodeAt(i);
        let child = node.next.get(unit);
        if (!child) node.next.set(unit, (child = { next: null, string: -1 }));
        node = child;
      }
      node.string = index;
      maxLength = Math.max(maxLength, text.length);
    });
    this.maxLength = maxLength;
  }

  /** Index of the longest string at `start`, or -1. A unit with a non-zero mark matches nothing. */
  longestAt(text: string, start: number, marks?: Uint8Array | null): number {
    let best = -1;
    let node = this.#root;
    for (let i = start; i < text.length; i++) {
      if (marks?.[i]) break;
      const child = node.next?.get(text.charCodeAt(i));
      if (!child) break;
      if (child.string >= 0) best = child.string;
      node = child;
    }
    return best;
  }

  /** Calls `found` with the index of every string at `start`. True when the text ends inside a string, which could go on. */
  allAt(text: string, start: number, found: (string: number) => void): boolean {
    let node = this.#root;
    for (let i = start; i < text.length; i++) {
      const child = node.next?.get(text.charCodeAt(i));
      if (!child) return false;
      if (child.string >= 0) found(child.string);
      node = child;
    }
    return start < text.length && node.next !== null;
  }
}
