/** Log-probabilities of tokens, given with the piece of the answer in which their text is. */

import type { TokenLogprobs } from '../engine/api.ts';
import type { TurnLogprobs } from './turn.ts';

interface Token {
  readonly text: string;
  readonly logprobs: TurnLogprobs;
}

/**
 * Text may come later than its token, be it bytes of a character or what could have become a tag. Tokens of tags and calls are in
 * no piece: they are dropped.
 */
export class LogprobQueue {
  readonly #bytesOf: (id: number) => Uint8Array;
  readonly #withTable: boolean;
  #waiting: Token[] = [];

  /** `withTable` false: only the chosen tokens, which the engine's tables have in any case. */
  constructor(tokenBytes: (id: number) => Uint8Array, withTable = true) {
    this.#bytesOf = tokenBytes;
    this.#withTable = withTable;
  }

  /** `text`: what the engine gave with the token. */
  add(text: string, logprobs: TokenLogprobs): void {
    const named = ({ id, logprob }: { id: number; logprob: number }) => ({ ...this.#nameOf(id), logprob });
    this.#waiting.push({ text, logprobs: { ...named(logprobs), top: this.#withTable ? logprobs.top.map(named) : [] } });
  }

  /** Those of a piece of text that is given now. What came before it was markup. */
  take(piece: string): TurnLogprobs[] {
    const joined = this.#waiting.map(token => token.text).join('');
    const from = joined.endsWith(piece) ? joined.length - piece.length : joined.indexOf(piece);
    // a part of the piece was given with an earlier token: all that wait belong to the rest
    const end = from < 0 ? joined.length : from + piece.length;
    const taken: TurnLogprobs[] = [];
    let silent: TurnLogprobs[] = [];
    let at = 0;
    let used = 0;
    for (const { text, logprobs } of this.#waiting) {
      if (at >= end) break;
      used++;
      at += text.length;
      // a token without text is the beginning of a character that the next one completes
      if (text === '') silent.push(logprobs);
      else {
        if (at > from) taken.push(...silent, logprobs);
        silent = [];
      }
    }
    this.#waiting = this.#waiting.slice(used);
    return taken;
  }

  /** What waits was the text of a call; its last token may also begin what follows. */
  skip(): void {
    this.#waiting = this.#waiting.slice(-1);
  }

  #nameOf(id: number): { token: string; bytes: readonly number[] } {
    const bytes = this.#bytesOf(id);
    return { token: new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes), bytes: [...bytes] };
  }
}
