/** What `--policy pin` does besides eviction, in a replay: pins from the history of use, which here is what the trace has had so far. */

import type { ExpertStore } from '../store.ts';
import { Usage } from '../usage/heat.ts';
import { MIN_TOKENS } from '../usage/pins.ts';
import { Placement } from '../usage/placement.ts';
import type { Trace, TraceHeader } from './trace.ts';

/** A trace does not say where requests end, and pins change hands between two: about so far apart. */
const EXCHANGE_EVERY_TOKENS = 256;

export class ReplayedPins {
  readonly #store: ExpertStore;
  readonly #usage: Usage;
  readonly #wanted: Int32Array;
  readonly #uses: Int32Array;
  #placement: Placement | null = null;
  #dueTokens = MIN_TOKENS;

  constructor(store: ExpertStore, { experts, topK, expertBytes }: TraceHeader) {
    this.#store = store;
    this.#usage = new Usage({ layers: expertBytes.length, experts, topK });
    this.#wanted = new Int32Array(experts);
    this.#uses = new Int32Array(experts);
  }

  /** After a lease has been served. Which of its experts served how many rows is not in a trace: all as many. */
  leaseEnds({ header, layer, rows, start, ids }: Trace, lease: number): void {
    const count = start[lease + 1] - start[lease];
    const uses = Math.max(1, Math.round((rows[lease] * header.topK) / count));
    for (let i = 0; i < count; i++) {
      this.#wanted[i] = ids[start[lease] + i];
      this.#uses[i] = uses;
    }
    this.#usage.leaseBegins(layer[lease], this.#wanted, this.#uses, count);
    if (this.#usage.tokens < this.#dueTokens) return;
    this.#dueTokens = this.#usage.tokens + EXCHANGE_EVERY_TOKENS;
    if (this.#placement !== null) this.#placement.exchange(this.#usage);
    else this.#placement = new Placement(this.#store, { usage: this.#usage, pins: true, reads: 0 });
  }
}
