/** What it costs to give all lanes a job without work and to meet at its end. */

import { median } from '../src/common/median.ts';
import { PARKED } from '../src/compute/control.ts';
import type { Lanes } from '../src/compute/lanes.ts';
import { Op } from '../src/kernels/commands.ts';

const SPINNING_JOBS = 20_000;
const BATCH = 100;
const PARKED_JOBS = 200;
/** A lane counts itself as parked just before it sleeps. */
const FALL_ASLEEP_MS = 0.2;
/** A lane that does not park at all ends the measurement. */
const MAX_WAIT_MS = 10_000;

/** Nothing is read there, but kernels may refuse an address outside the arena. */
const ANY_ADDRESS = 64;

export interface BarrierCost {
  /** Medians of one job, in microseconds. */
  readonly spinningUs: number;
  /** All lanes asleep; null with one lane. */
  readonly parkedUs: number | null;
}

/** Gives every lane one command of no items; with one lane the job runs alone. */
export function emptyJob(lanes: Lanes): void {
  for (let lane = 0; lane < lanes.count; lane++) {
    const p = lanes.command(Op.add, 0, 0, 1);
    lanes.control.unsigned[p] = ANY_ADDRESS;
    lanes.control.unsigned[p + 1] = ANY_ADDRESS;
  }
  lanes.run();
}

export function measureBarrier(lanes: Lanes): BarrierCost {
  const spinning: number[] = [];
  for (let i = 0; i < SPINNING_JOBS / BATCH; i++) {
    const begun = performance.now();
    for (let job = 0; job < BATCH; job++) emptyJob(lanes);
    spinning.push(((performance.now() - begun) / BATCH) * 1000);
  }
  return { spinningUs: median(spinning), parkedUs: lanes.count > 1 ? parked(lanes) : null };
}

function parked(lanes: Lanes): number {
  const { words } = lanes.control;
  const times: number[] = [];
  for (let i = 0; i < PARKED_JOBS; i++) {
    const asked = performance.now();
    while (Atomics.load(words, PARKED) < lanes.count - 1) {
      if (performance.now() - asked > MAX_WAIT_MS) throw new Error('an idle lane does not park');
    }
    const asleep = performance.now() + FALL_ASLEEP_MS;
    while (performance.now() < asleep);
    const begun = performance.now();
    emptyJob(lanes);
    times.push((performance.now() - begun) * 1000);
  }
  return median(times);
}
