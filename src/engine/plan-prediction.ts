/**
 * How fast a model can be on this machine: arithmetic on what a token moves and on what was measured. Two bounds: `serial` routes, then
 * reads, then computes; `overlap` does all at once. Real runs are between them as far as the hit rate is right.
 */

import type { ComputeEntry } from './measurements.ts';
import type { Traffic } from './plan-facts.ts';

/** Jobs of the lanes in one layer of one token. Counted in runs of six families, the head included: 24 to 31. */
const JOBS_PER_LAYER = 26;
/** A read through the page cache is written, copied from and copied to; a direct one only written. */
const DIRECT_PASSES = 1;
const BUFFERED_PASSES = 3;

export interface Speeds {
  /** As the engine reads. */
  readonly disk: { readonly bytesPerSecond: number; readonly medianReadUs: number };
  readonly direct: boolean;
  readonly compute: Pick<ComputeEntry, 'memoryBytesPerSecond' | 'jobUs' | 'layouts'>;
}

export interface Shape {
  readonly layers: number;
  readonly moeLayers: number;
  readonly experts: number;
  readonly topK: number;
}

export interface TokenTime {
  /** Seconds of each, as if nothing else were in the way. */
  readonly disk: number;
  readonly memory: number;
  readonly compute: number;
  readonly latency: number;
  readonly serial: number;
  readonly overlap: number;
}

/** One decoded token, when `hitRate` of the experts' bytes are in memory. */
export function tokenTime(
  traffic: Traffic,
  shape: Shape,
  { disk, direct, compute }: Speeds,
  hitRate: number,
): TokenTime {
  const missBytes = (1 - hitRate) * traffic.expertDiskBytes;
  const passes = direct ? DIRECT_PASSES : BUFFERED_PASSES;
  const { memoryBytesPerSecond, jobUs } = compute;
  const moved = traffic.denseBytes + traffic.expertBytes + traffic.kvBytes;
  const diskSeconds = missBytes / disk.bytesPerSecond;
  const memory = (moved + passes * missBytes) / memoryBytesPerSecond;
  let multiply = 0;
  let stream = traffic.kvBytes / memoryBytesPerSecond;
  for (const [layout, { bytes, macs }] of traffic.work) {
    const rates = compute.layouts[layout];
    multiply += macs / rates.macsPerSecond;
    stream += bytes / rates.streamedBytesPerSecond;
  }
  const latency = (shape.layers * JOBS_PER_LAYER * jobUs) / 1e6;
  // the last reads of a layer do not keep all readers busy
  const missing = 1 - hitRate ** shape.topK;
  const lastReads = (shape.moeLayers * missing * disk.medianReadUs) / 2e6;
  const serial = diskSeconds + lastReads + Math.max(stream, memory, multiply) + latency;
  const overlap = Math.max(diskSeconds, memory, multiply) + latency;
  return { disk: diskSeconds, memory, compute: multiply, latency, serial, overlap };
}

export type Limit = 'disk' | 'memory' | 'compute' | 'latency';

/** What takes longest. */
export function limitOf(time: Pick<TokenTime, Limit>): Limit {
  const names: readonly Limit[] = ['disk', 'memory', 'compute', 'latency'];
  return names.reduce((most, name) => (time[name] > time[most] ? name : most));
}

/** Share of a layer's experts that at least one of so many tokens asks for, when all are equally likely: an upper bound. */
export function touchedShare({ experts, topK }: Pick<Shape, 'experts' | 'topK'>, tokens: number): number {
  return 1 - (1 - topK / experts) ** tokens;
}

export interface PromptTime {
  readonly seconds: number;
  readonly disk: number;
  readonly compute: number;
}

/** A prompt after a cold start: every chunk reads the experts that it asks for and that are not kept, each once. */
export function promptTime(
  traffic: Traffic,
  shape: Shape,
  { disk, compute }: Speeds,
  prompt: { readonly tokens: number; readonly chunk: number; readonly keptShare: number },
): PromptTime {
  const allExperts = traffic.expertDiskBytes * (shape.experts / shape.topK);
  const perToken = [...traffic.work].reduce((sum, [layout, { macs }]) => {
    return sum + macs / compute.layouts[layout].batchedMacsPerSecond;
  }, 0);
  let diskSeconds = 0;
  let computeSeconds = 0;
  let seconds = 0;
  for (let first = 0; first < prompt.tokens; first += prompt.chunk) {
    const tokens = Math.min(prompt.chunk, prompt.tokens - first);
    const kept = first === 0 ? 0 : prompt.keptShare;
    const read = (touchedShare(shape, tokens) * allExperts * (1 - kept)) / disk.bytesPerSecond;
    diskSeconds += read;
    computeSeconds += tokens * perToken;
    seconds += Math.max(read, tokens * perToken);
  }
  return { seconds, disk: diskSeconds, compute: computeSeconds };
}

export interface HitRates {
  readonly low: number;
  readonly likely: number;
  readonly high: number;
  readonly source: 'replay' | 'estimate';
  /** Tokens whose hits were counted; 0 for an estimate. */
  readonly replayed_tokens: number;
}

/** Not fitted: published caches of 12 and 25 % of the experts hit 67 and 81 %, which is skewed; uniform routing would hit 12 and 25 %. */
const LIKELY_EXPONENT = 0.6;
const HIGH_EXPONENT = 0.3;

/** Before anything is known of the texts: between routing at random and routing as skewed as published traces. */
export function modelledHitRates(slots: number, totalExperts: number, perToken: number): HitRates {
  const share = Math.min(1, slots / totalExperts);
  // fewer than one token needs: nothing outlives the token before it was used again
  const low = slots < perToken ? 0 : share;
  const [likely, high] = [share ** LIKELY_EXPONENT, share ** HIGH_EXPONENT];
  return { low, likely, high, source: 'estimate', replayed_tokens: 0 };
}
