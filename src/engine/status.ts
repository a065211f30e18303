/** Counters that the engine's thread writes and the main thread reads, in shared memory: reading them asks nobody. */

import type { ExpertCounters } from '../experts/counters.ts';
import type { EngineStatus } from './api.ts';

const FIELDS = [
  'active',
  'waiting',
  'steps',
  'decodeSteps',
  'decodeTokens',
  'promptTokens',
  'cachedTokens',
  'restoredTokens',
  'expertRequests',
  'expertHits',
  'expertsWarmed',
  'expertWarmHits',
  'pinSwaps',
  'bytesRead',
  'readWaitSeconds',
] as const satisfies readonly (keyof EngineStatus)[];

type Field = (typeof FIELDS)[number];

const AT = Object.fromEntries(FIELDS.map((field, at) => [field, at])) as Record<Field, number>;

export function createStatus(): SharedArrayBuffer {
  return new SharedArrayBuffer(FIELDS.length * 8);
}

export class StatusWriter {
  readonly #values: Float64Array;

  constructor(buffer: SharedArrayBuffer) {
    this.#values = new Float64Array(buffer);
  }

  set(field: Field, value: number): void {
    this.#values[AT[field]] = value;
  }

  add(field: Field, value: number): void {
    this.#values[AT[field]] += value;
  }

  experts({ requests, hits, warmed, warmHits, pinSwaps, bytesRead, waitUs }: ExpertCounters): void {
    this.set('expertRequests', requests);
    this.set('expertHits', hits);
    this.set('expertsWarmed', warmed);
    this.set('expertWarmHits', warmHits);
    this.set('pinSwaps', pinSwaps);
    this.set('bytesRead', bytesRead);
    this.set('readWaitSeconds', waitUs / 1e6);
  }
}

export function readStatus(buffer: SharedArrayBuffer): EngineStatus {
  const values = new Float64Array(buffer);
  return Object.fromEntries(FIELDS.map((field, at) => [field, values[at]])) as unknown as EngineStatus;
}
