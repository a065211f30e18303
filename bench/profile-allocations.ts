/**
 * Bytes of JavaScript heap that a token costs. The engine: size of the heap before and after a part of each token, less what
 * reading it costs; where the collector ran in between it shows as a fall, and the median passes over it. A lane: the same
 * around a run of tokens, to the byte, because reading it costs the lane nothing.
 */

import { getHeapStatistics } from 'node:v8';
import type { Worker } from 'node:worker_threads';
import { median } from '../src/common/median.ts';
import type { Lanes } from '../src/compute/lanes.ts';
import { emptyJob } from './profile-barrier.ts';

/** A lane allocates while its code is compiled; it is looked at until two runs in a row cost nothing, or this often. */
const LANE_RUNS = 8;

const heapBytes = () => getHeapStatistics().used_heap_size;

/** Median bytes of each part of a step; the parts run one after the other, `count` times. */
export function engineBytesPerStep(parts: readonly ((i: number) => void)[], count: number): number[] {
  // reading the heap costs what the part that does nothing seems to cost
  const all = [() => {}, ...parts];
  const differences = all.map(() => new Float64Array(count));
  for (let i = 0; i < count; i++) {
    for (let part = 0; part < all.length; part++) {
      const before = heapBytes();
      all[part](i);
      differences[part][i] = heapBytes() - before;
    }
  }
  const [reading, ...bytes] = differences.map(values => median([...values]));
  return bytes.map(each => each - reading);
}

/** Collects the lanes that are started while `start` runs. */
export async function withLaneWorkers<T>(start: () => Promise<T>): Promise<{ value: T; lanes: Worker[] }> {
  const started: Worker[] = [];
  const collect = (worker: Worker) => started.push(worker);
  process.on('worker', collect);
  try {
    const value = await start();
    return { value, lanes: started.filter(worker => worker.threadName?.startsWith('lane ')) };
  } finally {
    process.off('worker', collect);
  }
}

/** Bytes per token of each lane worker; `tokens` runs `count` tokens, few enough to pass between two collections. */
export async function laneBytesPerToken(
  lanes: Lanes,
  workers: readonly Worker[],
  tokens: () => void,
  count: number,
): Promise<number[]> {
  const runs: number[][] = [];
  for (let run = 0; run < LANE_RUNS; run++) {
    const before = await readLanes(lanes, workers);
    tokens();
    const after = await readLanes(lanes, workers);
    runs.push(workers.map((_, i) => (after[i] - before[i]) / count));
    if (
      run > 0 &&
      runs
        .slice(-2)
        .flat()
        .every(bytes => bytes === 0)
    )
      break;
  }
  return workers.map((_, i) => steadyBytes(runs.map(run => run[i])));
}

/**
 * What a run costs when everything is compiled: nothing if the last two did, else the median of the later half. A run below
 * zero met the collector and says only that there was something to collect; NaN when all of them did.
 */
export function steadyBytes(runs: readonly number[]): number {
  if (runs.slice(-2).every(bytes => bytes === 0)) return 0;
  const later = runs.slice(runs.length >> 1).filter(bytes => bytes >= 0);
  return later.length > 0 ? median(later) : Number.NaN;
}

/** A lane answers between two steps of its loop, so it must be given something to do. */
async function readLanes(lanes: Lanes, workers: readonly Worker[]): Promise<number[]> {
  const answers = Promise.all(workers.map(worker => worker.getHeapStatistics()));
  emptyJob(lanes);
  return (await answers).map(statistics => statistics.used_heap_size);
}
