/** How sure a figure is that was measured on a sample. */

/** Two-sided 95 % of the normal distribution. */
const Z = 1.959964;

export interface Interval {
  readonly low: number;
  readonly high: number;
}

/** Mean of a stream of values and its 95 % interval, without keeping the values (Welford's update). */
export class Mean {
  count = 0;
  mean = 0;
  #squares = 0;

  add(value: number): void {
    this.count++;
    const delta = value - this.mean;
    this.mean += delta / this.count;
    this.#squares += delta * (value - this.mean);
  }

  /** Standard error of the mean; 0 for fewer than two values. */
  get error(): number {
    return this.count < 2 ? 0 : Math.sqrt(this.#squares / (this.count - 1) / this.count);
  }

  get interval(): Interval {
    return { low: this.mean - Z * this.error, high: this.mean + Z * this.error };
  }
}

/** 95 % interval of a share, `hits` of `count` (Wilson score, which holds near 0 and 1 too). */
export function shareInterval(hits: number, count: number): Interval {
  if (count === 0) return { low: 0, high: 1 };
  const share = hits / count;
  const z2 = Z * Z;
  const centre = (share + z2 / (2 * count)) / (1 + z2 / count);
  const half = (Z * Math.sqrt((share * (1 - share)) / count + z2 / (4 * count * count))) / (1 + z2 / count);
  return { low: Math.max(0, centre - half), high: Math.min(1, centre + half) };
}

/** The value that a share q of the values does not exceed; NaN of none. */
export function quantile(values: readonly number[], q: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(q * sorted.length) - 1))] ?? Number.NaN;
}
