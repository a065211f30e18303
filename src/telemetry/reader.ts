/** The reading side of telemetry: asks nobody, and holds nobody up. */

import { decodeEvent, type TelemetryEvent } from './events.ts';
import {
  LAST_VERSION,
  SUMS_VERSION,
  Sums,
  type TelemetryShape,
  type TelemetryShared,
  viewTelemetry,
} from './memory.ts';
import { RingReader } from './ring.ts';

/** Sums are written for a few microseconds after each step; who meets that so often reads them as they are. */
const TRIES = 100;

export class TelemetryReader {
  readonly shape: TelemetryShape;
  readonly #view: ReturnType<typeof viewTelemetry>;
  readonly #buffer: SharedArrayBuffer;

  constructor(shared: TelemetryShared) {
    this.shape = shared;
    this.#view = viewTelemetry(shared);
    this.#buffer = shared.buffer;
  }

  /** Since the engine was opened. */
  sums(): Sums {
    return this.#copy(this.#view.sums, SUMS_VERSION);
  }

  /** Of the steps in which the last request took part; zeros before the first. */
  lastRequest(): Sums {
    return this.#copy(this.#view.last, LAST_VERSION);
  }

  /** Per layer and expert, as they are at this moment; see EXPERT_TIERS. */
  get tiers(): Uint8Array {
    return this.#view.tiers;
  }

  get heat(): Float64Array {
    return this.#view.heat;
  }

  /** How often each expert was used since the last request began. */
  get turnUses(): Uint32Array {
    return this.#view.turnUses;
  }

  /** Events from now on. */
  events(): EventReader {
    return new EventReader(new RingReader(this.#buffer, this.#view.ringAt));
  }

  #copy(from: Float64Array, version: number): Sums {
    const { head } = this.#view;
    let copy = from.slice();
    for (let left = TRIES; left > 0; left--) {
      const before = Atomics.load(head, version);
      copy = from.slice();
      if (before % 2 === 0 && Atomics.load(head, version) === before) break;
    }
    return new Sums(this.shape, copy);
  }
}

export class EventReader {
  readonly #ring: RingReader;

  constructor(ring: RingReader) {
    this.#ring = ring;
  }

  /** Events that were overwritten before they were read. */
  get lost(): number {
    return this.#ring.lost;
  }

  /** All that have been written since the last call. */
  take(): TelemetryEvent[] {
    const events: TelemetryEvent[] = [];
    for (let record = this.#ring.read(); record; record = this.#ring.read()) events.push(decodeEvent(record));
    return events;
  }
}
