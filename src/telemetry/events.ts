/** Records of the ring as objects. */

import { EVENT_KINDS, type EventKind, HEAD_WORDS, KIND_NAMES, type Numbers, named } from './fields.ts';

export interface TelemetryEvent {
  readonly type: EventKind;
  /** Counts forward passes since the engine was opened. */
  readonly step: number;
  /** -1 for what belongs to no layer. */
  readonly layer: number;
  /** Milliseconds since the engine was opened. */
  readonly ms: number;
  /** By the names that EVENT_KINDS has for the type. */
  readonly fields: Numbers;
}

/** By code. */
const NAMES = KIND_NAMES.map(kind => Object.keys(EVENT_KINDS[kind].fields));

export function decodeEvent(record: Float64Array): TelemetryEvent {
  const [kind, step, layer, ms] = record;
  return { type: KIND_NAMES[kind], step, layer, ms, fields: named(NAMES[kind], record, HEAD_WORDS) };
}
