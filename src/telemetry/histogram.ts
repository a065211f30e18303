/**
 * Histograms whose buckets grow with the value: every octave has the same number of buckets, so a quantile is wrong by at most
 * MAX_RELATIVE_ERROR of itself, whatever its size. Buckets are counts, so histograms are merged by adding and those of a period
 * come from subtracting. Values are positive; those below 1 count as 1.
 */

/** A power of two. */
const BUCKETS_PER_OCTAVE = 32;
/** In microseconds: a day and a half. */
const OCTAVES = 37;
export const BUCKETS = OCTAVES * BUCKETS_PER_OCTAVE;
/** A quantile is the middle of its bucket. */
export const MAX_RELATIVE_ERROR = 1 / (2 * BUCKETS_PER_OCTAVE);

/** Numbers of a histogram: buckets, then the sum of the values. */
export const HISTOGRAM_WORDS = BUCKETS + 1;

const MANTISSA_SHIFT = 20 - Math.log2(BUCKETS_PER_OCTAVE);
const EXPONENT_BIAS = 1023;
// the bits of a float64 are its octave and its place in it
const bits = new Float64Array(1);
const words = new Int32Array(bits.buffer);
const HIGH = new Uint8Array(Uint16Array.of(1).buffer)[0] === 1 ? 1 : 0;

export function bucketOf(value: number): number {
  if (!(value > 1)) return 0;
  bits[0] = value;
  const bucket = (words[HIGH] >> MANTISSA_SHIFT) - EXPONENT_BIAS * BUCKETS_PER_OCTAVE;
  return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/** Smallest value of a bucket. */
export function bucketStart(bucket: number): number {
  const octave = Math.floor(bucket / BUCKETS_PER_OCTAVE);
  return 2 ** octave * (1 + (bucket % BUCKETS_PER_OCTAVE) / BUCKETS_PER_OCTAVE);
}

/** Adds `count` times a value to the histogram that begins at a position. */
export function observe(into: Float64Array, at: number, value: number, count = 1): void {
  into[at + bucketOf(value)] += count;
  into[at + BUCKETS] += value * count;
}

/** What a histogram says; all null when it is empty. `max` is the upper end of the highest bucket in use. */
export interface Distribution {
  readonly count: number;
  readonly mean: number | null;
  readonly p50: number | null;
  readonly p90: number | null;
  readonly p99: number | null;
  readonly max: number | null;
}

/** Of the histogram that begins at a position. */
export function distribution(from: Float64Array, at = 0): Distribution {
  let count = 0;
  let highest = -1;
  for (let bucket = 0; bucket < BUCKETS; bucket++) {
    if (from[at + bucket] <= 0) continue;
    count += from[at + bucket];
    highest = bucket;
  }
  if (count === 0) return { count, mean: null, p50: null, p90: null, p99: null, max: null };
  const at_ = (q: number) => quantile(from, at, count, q);
  return {
    count,
    mean: from[at + BUCKETS] / count,
    p50: at_(0.5),
    p90: at_(0.9),
    p99: at_(0.99),
    max: bucketStart(highest + 1),
  };
}

/** The smallest value that is not below a share q of all values, as the middle of its bucket. */
function quantile(from: Float64Array, at: number, count: number, q: number): number {
  let left = Math.max(1, Math.ceil(q * count));
  for (let bucket = 0; bucket < BUCKETS; bucket++) {
    left -= from[at + bucket];
    if (left <= 0) return (bucketStart(bucket) + bucketStart(bucket + 1)) / 2;
  }
  return bucketStart(BUCKETS);
}
