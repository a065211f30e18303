/**
 * What a history of use does to the slots of a store. Between requests: empty slots are filled with the experts that were hottest.
 * With pins: some of those stay for good, and at safe points a few are exchanged when the texts have moved on. A pin reads nothing:
 * the expert stays from when it is read next.
 */

import type { ExpertStore } from '../store.ts';
import type { Usage, UsageShape } from './heat.ts';
import { chooseSwaps, hottest, MIN_TOKENS } from './pins.ts';

/** Share of the slots that is pinned. Measured on halves of texts: with more, other texts have too little left. */
const PINNED_SHARE = 1 / 8;

export interface PlacementOptions {
  /** What is known at the start. */
  readonly usage: Usage;
  readonly pins: boolean;
  /** Reads that are under way at a time; the readers must not all be busy when a request comes. */
  readonly reads: number;
}

type PlacedStore = Pick<ExpertStore, 'warm' | 'pin' | 'collect' | 'isResident' | 'slotCount' | 'counters'>;

export class Placement {
  readonly #store: PlacedStore;
  readonly #shape: UsageShape;
  readonly #reads: number;
  /** Indexes of experts. */
  readonly #warm: readonly number[];
  #nextWarm = 0;
  #pinned: readonly number[];

  constructor(store: PlacedStore, { usage, pins, reads }: PlacementOptions) {
    this.#store = store;
    this.#shape = usage.shape;
    this.#reads = reads;
    this.#warm = hottest(usage, store.slotCount);
    this.#pinned =
      pins && usage.tokens >= MIN_TOKENS ? this.#warm.slice(0, pinCount(store.slotCount, usage.shape)) : [];
    for (const index of this.#pinned) this.#pin(index, true);
  }

  get pinned(): number {
    return this.#pinned.length;
  }

  /** There are slots to fill, perhaps. */
  get hasMore(): boolean {
    return this.#nextWarm < this.#warm.length;
  }

  /** While no request runs: goes on with filling empty slots; false when there is nothing left to do. */
  fill(): boolean {
    let under = this.#store.collect();
    while (under < this.#reads && this.#nextWarm < this.#warm.length) {
      const [layer, expert] = this.#place(this.#warm[this.#nextWarm]);
      if (this.#store.warm(layer, expert)) under++;
      else if (!this.#store.isResident(layer, expert)) {
        // all slots are taken
        this.#nextWarm = this.#warm.length;
        break;
      }
      this.#nextWarm++;
    }
    return under > 0;
  }

  /** While no request runs: lets pins go for experts that have become much hotter. `usage`: up to now. */
  exchange(usage: Usage): void {
    const swaps = chooseSwaps(usage, this.#pinned);
    for (const swap of swaps) {
      this.#pin(swap.out, false);
      this.#pin(swap.in, true);
      this.#pinned = [...this.#pinned.filter(index => index !== swap.out), swap.in];
    }
    this.#store.counters.pinSwaps += swaps.length;
  }

  #pin(index: number, on: boolean): void {
    const [layer, expert] = this.#place(index);
    this.#store.pin(layer, expert, on);
  }

  #place(index: number): [layer: number, expert: number] {
    return [Math.floor(index / this.#shape.experts), index % this.#shape.experts];
  }
}

/** Never so many that a token would not find room for all that it uses. */
export function pinCount(slots: number, { layers, topK }: UsageShape): number {
  return Math.max(0, Math.min(Math.floor(slots * PINNED_SHARE), slots - layers * topK));
}
