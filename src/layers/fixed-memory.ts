/**
 * Recurrent state of all sessions: so many floats whatever the number of tokens. It cannot be taken back token by token, so copies
 * of it are kept for some lengths.
 */

import { PlanError } from '../common/errors.ts';
import type { Arenas, Place } from '../compute/arenas.ts';
import type { FixedState } from './state.ts';

/** Copies per session: of this turn of a conversation, of the one before it, and where it parted from another one. */
export const SNAPSHOTS = 3;

interface Snapshot {
  readonly place: Place;
  /** Tokens that it is the state after; -1 = none. */
  length: number;
  /** The larger, the later it was taken or used. */
  age: number;
}

export class FixedMemory {
  readonly #arenas: Arenas;
  /** Where each state begins in a session's floats. */
  readonly #first: readonly number[];
  /** Of one session, all states. */
  readonly #floats: number;
  readonly #live: Place;
  readonly #snapshots: Snapshot[][] = [];
  readonly #sessions: number;
  #clock = 0;

  constructor(arenas: Arenas, states: readonly FixedState[], sessions: number) {
    this.#arenas = arenas;
    this.#sessions = sessions;
    let floats = 0;
    this.#first = states.map(state => {
      floats += state.floats;
      return floats - state.floats;
    });
    this.#floats = floats;
    this.#live = arenas.place(sessions * floats * 4, 'kv');
    if (this.#live.arena === 0) return;
    throw new PlanError('STATE_TOO_LARGE', 'the recurrent state of all sessions does not fit the first memory', {
      hint: 'use fewer --slots',
      details: { bytes: sessions * floats * 4 },
    });
  }

  placeSnapshots(): void {
    for (let session = 0; session < this.#sessions; session++) {
      this.#snapshots.push(
        Array.from({ length: SNAPSHOTS }, () => ({
          place: this.#arenas.place(this.#floats * 4, 'kv'),
          length: -1,
          age: 0,
        })),
      );
    }
  }

  /** Address in arena 0 of a session's part of the i-th fixed state. */
  address(state: number, session: number): number {
    return this.#live.offset + (session * this.#floats + this.#first[state]) * 4;
  }

  /** Lengths up to n whose state is kept, the longest first; 0 is always there. */
  lengths(session: number, n: number): number[] {
    const kept = this.#snapshots[session].map(snapshot => snapshot.length).filter(length => length > 0 && length <= n);
    return [...kept.sort((a, b) => b - a), 0];
  }

  /**
   * Keeps the session's state, which is that after `length` tokens: in place of the copy after `replaces` tokens, or of that which was
   * not used for the longest time.
   */
  snapshot(session: number, length: number, replaces: number): void {
    const all = this.#snapshots[session];
    const copyOf = (tokens: number) => all.find(snapshot => snapshot.length === tokens && tokens > 0);
    const target =
      copyOf(length) ?? copyOf(replaces) ?? all.reduce((oldest, one) => (one.age < oldest.age ? one : oldest));
    this.#words(target.place).set(this.#liveWords(session));
    target.length = length;
    target.age = ++this.#clock;
  }

  /** The session's state becomes that after `length` tokens; later copies are of another text and go. */
  restore(session: number, length: number): void {
    for (const snapshot of this.#snapshots[session]) if (snapshot.length > length) this.#forget(snapshot);
    this.#load(session, session, length);
  }

  /** `to` becomes what `from` was after `length` tokens. isLive: that is what `from` is now. */
  copy(from: number, to: number, length: number, isLive: boolean): void {
    this.#snapshots[to].forEach((snapshot, i) => {
      const source = this.#snapshots[from][i];
      if (source.length <= 0 || source.length > length) {
        this.#forget(snapshot);
        return;
      }
      this.#words(snapshot.place).set(this.#words(source.place));
      snapshot.length = source.length;
      snapshot.age = ++this.#clock;
    });
    if (isLive) this.#liveWords(to).set(this.#liveWords(from));
    else this.#load(from, to, length);
  }

  #load(from: number, to: number, length: number): void {
    const live = this.#liveWords(to);
    if (length === 0) {
      live.fill(0);
      return;
    }
    const snapshot = this.#snapshots[from].find(one => one.length === length)!;
    snapshot.age = ++this.#clock;
    live.set(this.#words(snapshot.place));
  }

  #forget(snapshot: Snapshot): void {
    snapshot.length = -1;
    snapshot.age = 0;
  }

  #words({ arena, offset }: Place): Int32Array {
    return this.#arenas.words[arena].subarray(offset / 4, offset / 4 + this.#floats);
  }

  #liveWords(session: number): Int32Array {
    const first = this.address(0, session) / 4;
    return this.#arenas.words[0].subarray(first, first + this.#floats);
  }
}
