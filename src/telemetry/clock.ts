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
  /** Off, it costs next to nothing and books nothing. */
  isOn = false;
  #phase = PHASE.other;
  #last = 0;

  /** Books the time that has passed to the phase that ends, and begins another. */
  enter(phase: number): void {
    if (!this.isOn) return;
    const now = performance.now();
    this.us[this.#phase] += (now - this.#last) * 1000;
    this.#last = now;
    this.#phase = phase;
  }

  layerEnds(layer: number): void {
    if (this.isOn) this.listener?.layerEnds(layer);
  }

  /** Begins from nothing, between phases. */
  start(): void {
    this.isOn = true;
    this.#phase = PHASE.other;
    this.#last = performance.now();
    this.clear();
  }

  stop(): void {
    this.isOn = false;
  }

  /** Books up to now; the phase goes on. */
  book(): void {
    this.enter(this.#phase);
  }

  clear(): void {
    this.us.fill(0);
  }
}
