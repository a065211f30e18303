/** The engine's end of a constraint: ids out, masks in, through shared words. See grammar/api.ts for the protocol. */

import { RequestError } from '../common/errors.ts';
import {
  CLOSED,
  COUNT,
  type ConstraintChannel,
  IDS,
  maskAt,
  maskWords,
  READY,
  RUNNING,
  STATUS,
  TIMED_OUT,
} from '../grammar/api.ts';

export class ConstraintReader {
  readonly #channel: ConstraintChannel;
  readonly #mask: Int32Array;
  /** The token after which the constraint begins to hold; null once it does. */
  #afterId: number | null;
  #count = 0;

  constructor(channel: ConstraintChannel, afterId: number | null) {
    this.#channel = channel;
    this.#afterId = afterId;
    const first = maskAt(channel);
    this.#mask = channel.words.subarray(first, first + maskWords(channel.vocabSize));
  }

  get #holds(): boolean {
    return this.#afterId === null;
  }

  /** True when the next token can be chosen now. Throws RequestError when the constraint has failed. */
  get isReady(): boolean {
    if (!this.#holds) return true;
    const { words } = this.#channel;
    const status = Atomics.load(words, STATUS);
    if (status !== RUNNING) throw failure(status);
    return Atomics.load(words, READY) === this.#count;
  }

  /** Waits for at most `ms` while the mask is not there. */
  wait(ms: number): void {
    const { words } = this.#channel;
    const seen = Atomics.load(words, READY);
    if (seen !== this.#count && Atomics.load(words, STATUS) === RUNNING) Atomics.wait(words, READY, seen, ms);
  }

  /** Bits of the ids that may come next, or null while every id may. Only when it is ready. */
  get mask(): Int32Array | null {
    return this.#holds ? this.#mask : null;
  }

  /** Tells that `id` was chosen; the next mask is computed while the engine goes on. */
  accept(id: number): void {
    if (!this.#holds) {
      if (id === this.#afterId) this.#afterId = null;
      return;
    }
    const { words, doorbell } = this.#channel;
    words[IDS + this.#count] = id;
    this.#count++;
    Atomics.store(words, COUNT, this.#count);
    Atomics.add(doorbell, 0, 1);
    Atomics.notify(doorbell, 0);
  }
}

function failure(status: number): RequestError {
  if (status === TIMED_OUT) {
    return new RequestError('CONSTRAINT_TOO_SLOW', 'finding the tokens that the required form allows took too long', {
      hint: 'simplify the schema or grammar: fewer alternatives, smaller maxLength and maxItems',
    });
  }
  const what = status === CLOSED ? 'was given up because the engine closes' : 'cannot be continued';
  return new RequestError('CONSTRAINT_FAILED', `the answer in the required form ${what}`, {
    hint: 'send the request again; if it fails again, simplify the schema or grammar',
  });
}
