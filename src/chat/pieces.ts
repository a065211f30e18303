/** Pieces of an answer on their way out: those of one push that belong together become one. */

import type { ChatPiece } from './api.ts';

export class Pieces {
  #out: ChatPiece[] = [];

  add(piece: ChatPiece): void {
    const last = this.#out.at(-1);
    if (last && piece.type !== 'call' && last.type === piece.type && sameIndex(last, piece)) {
      this.#out[this.#out.length - 1] = { ...piece, text: last.text + piece.text };
    } else this.#out.push(piece);
  }

  /** Hands out what has been added since the last time. */
  take(): ChatPiece[] {
    const out = this.#out;
    this.#out = [];
    return out;
  }
}

function sameIndex(a: ChatPiece, b: ChatPiece): boolean {
  return !('index' in a) || !('index' in b) || a.index === b.index;
}
