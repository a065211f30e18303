/** How long the arithmetic of a conversion takes on this machine, measured on a little of it. */

import type { Layout } from '../quant/layouts.ts';
import { decodeRows, encodeRows } from './encode.ts';
import type { ConversionPlan } from './types.ts';

/** Some milliseconds of work, so that the clock and the compiler of JavaScript do not matter. */
const ROWS = 64;
const COLUMNS = 1024;
const TRIES = 4;

/** Seconds for all shards that are not finished; reading, writing and downloading are not in it. */
export function estimateSeconds({ shards, finishedShards }: ConversionPlan, threads: number): number {
  const weights = new Map<Layout, number>();
  for (const { name, tensors } of shards) {
    if (finishedShards.includes(name)) continue;
    for (const { layout, rows, columns } of tensors.flatMap(({ parts }) => parts)) {
      weights.set(layout, (weights.get(layout) ?? 0) + rows * columns);
    }
  }
  const seconds = [...weights].reduce((sum, [layout, count]) => sum + count * secondsPerWeight(layout), 0);
  return seconds / threads;
}

function secondsPerWeight(layout: Layout): number {
  const target = layout === 'q4g64' || layout === 'q8g64' || layout === 'bf16' ? layout : 'f32';
  const values = Float32Array.from({ length: ROWS * COLUMNS }, (_, i) => Math.sin(i) / 8);
  const stored = encodeRows('bf16', values, ROWS, COLUMNS);
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < TRIES; i++) {
    const startedMs = performance.now();
    encodeRows(target, decodeRows('bf16', stored, ROWS, COLUMNS), ROWS, COLUMNS);
    best = Math.min(best, performance.now() - startedMs);
  }
  return best / 1000 / (ROWS * COLUMNS);
}
