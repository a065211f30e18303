/** Where time goes: every moment belongs to one phase, so phases sum to the time that passed. */

import { PHASE, PHASES } from './fields.ts';

/** Told when a layer of a forward pass is done. */
export interface LayerListener {
  layerEnds(layer: number): void;
}

export class PhaseClock {
  /** Microseconds by phase since the last `clear`, the phase that runs not booked yet. */
  readonly us = new Float64Array(PHASES.length);
  listener: LayerListener | null = null;
  #phase = PHASE.other;
  #last = 0;

  /** Books the time that has passed to the phase that ends, and begins another. */
  enter(phase: number): void {
    const now = performance.now();
    this.us[this.#phase] += (now - this.#last) * 1000;
    this.#last = now;
    this.#phase = phase;
  }

  layerEnds(layer: number): void {
    this.listener?.layerEnds(layer);
  }

  /** Books up to now; the phase goes on. */
  book(): void {
    this.enter(this.#phase);
  }

  clear(): void {
    this.us.fill(0);
  }
}
