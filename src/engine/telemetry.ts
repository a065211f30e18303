/** What telemetry gets to see of an engine. */

import type { ExpertStore } from '../experts/store.ts';
import type { ModelShape } from '../models/family.ts';
import type { ReadPool } from '../storage/read-pool.ts';
import { WORK_AT } from '../telemetry/fields.ts';
import { createTelemetry } from '../telemetry/memory.ts';
import { Recorder } from '../telemetry/recorder.ts';
import type { BuiltModel } from './model-plan.ts';
import type { Runtime } from './runtime.ts';
import type { UsageHistory } from './usage.ts';

/** A recorder of all that this model does from now on. */
export function recordTelemetry(
  { layers, experts, moeLayers }: Pick<ModelShape, 'layers' | 'experts' | 'moeLayers'>,
  { compute, store }: Pick<BuiltModel, 'compute' | 'store'>,
  pool: Pick<ReadPool, 'waitedServiceUs'>,
): Recorder {
  const { counters } = store;
  const at = WORK_AT;
  return new Recorder(
    createTelemetry({ layers, experts, moeLayers: moeLayers.filter(layer => layer < layers) }),
    compute.clock,
    into => {
      into[at.requests] = counters.requests;
      into[at.pinnedHits] = counters.pinnedHits;
      into[at.cachedHits] = counters.hits - counters.pinnedHits - counters.aheadHits;
      into[at.aheadHits] = counters.aheadHits;
      into[at.diskHits] = counters.misses;
      into[at.pinnedBytes] = counters.pinnedBytes;
      into[at.cachedBytes] = counters.hitBytes - counters.pinnedBytes - counters.usefulBytes;
      into[at.aheadBytes] = counters.usefulBytes;
      into[at.diskBytes] = counters.missBytes;
      into[at.prefetched] = counters.prefetched;
      into[at.wasted] = counters.wasted;
      into[at.wastedBytes] = counters.wastedBytes;
      into[at.lateHits] = counters.aheadLate;
      into[at.guessable] = counters.guessable;
      into[at.guessed] = counters.guessed;
      into[at.readBytes] = counters.bytesRead;
      into[at.serviceUs] = counters.serviceUs;
      into[at.waitUs] = counters.waitUs;
      into[at.waitedServiceUs] = pool.waitedServiceUs;
    },
  );
}

/** What telemetry is told while no request runs: how hot experts are, where they are, and which are kept for good in the place of others. */
export class IdleTelemetry {
  readonly #telemetry: Recorder;
  readonly #store: ExpertStore;
  readonly #history: UsageHistory | null;
  #tokens = -1;
  #swaps = 0;

  constructor({ telemetry, store }: Pick<Runtime, 'telemetry' | 'store'>, history: UsageHistory | null) {
    this.#telemetry = telemetry;
    this.#store = store;
    this.#history = history;
  }

  /** Often while slots are filled, at last when there is nothing to do. */
  tell(isLast: boolean): void {
    const { pinSwaps } = this.#store.counters;
    if (pinSwaps > this.#swaps) this.#telemetry.note('repin', pinSwaps - this.#swaps);
    this.#swaps = pinSwaps;
    this.#telemetry.experts(places => this.#store.places(places), isLast);
    const history = this.#history;
    if (!history || history.recent.tokens === this.#tokens) return;
    this.#tokens = history.recent.tokens;
    const usage = history.total();
    const { heat } = this.#telemetry;
    for (let i = 0; i < heat.length; i++) heat[i] = usage.heat(i);
  }
}
