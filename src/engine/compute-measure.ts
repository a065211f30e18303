/** How fast this processor multiplies with weights of a layout, and how fast it reads them from memory: stored, or measured now. */

import os from 'node:os';
import { MIB } from '../common/units.ts';
import { Arenas } from '../compute/arenas.ts';
import { Compute, type Input } from '../compute/compute.ts';
import { type Matrix, matrixOf } from '../compute/matrix.ts';
import type { SelectedKernels } from '../kernels/select.ts';
import { type Layout, layoutBytes } from '../quant/layouts.ts';
import type { Found } from './disk-measure.ts';
import { type ComputeEntry, storedMeasurements, storeMeasurement } from './measurements.ts';

/** Larger than the caches of common processors together: what is read again comes from memory. */
const STREAMED_BYTES = 128 * MIB;
/** Fits the second-level cache of a lane. */
const CACHED_BYTES_PER_LANE = MIB / 4;
/** A multiple of every block and group. */
const COLUMNS = 2048;
/** Rows of a prompt that meet in one expert. */
const BATCH = 16;
/** A measurement of one rate takes this long. */
const SHORT_MS = 30;
const LONG_MS = 250;
/** Any byte whose repetition is an ordinary number in every layout. */
const FILL = 0x31;
const WARM_JOBS = 50;
const ROUNDS = 4;
/** Parts of the memory that is read: so many different matrices. */
const SLICES = 8;

export interface ComputeWish {
  readonly when: 'stored' | 'short' | 'fresh';
  readonly kernels: SelectedKernels;
  readonly lanes: number;
  readonly exact: boolean;
  readonly layouts: readonly Layout[];
  readonly directory?: string;
  readonly onProgress?: (done: number, total: number) => void;
}

export function computeKey({ kernels, lanes, exact }: Pick<ComputeWish, 'kernels' | 'lanes' | 'exact'>): string {
  const cpu = os.cpus()[0]?.model.trim() ?? 'unknown';
  return [os.hostname(), cpu, process.arch, kernels.name, exact ? 'exact' : 'int8', lanes].join(' | ');
}

/** Null when not all is stored and nothing may be measured. */
export async function computeSpeed(wish: ComputeWish): Promise<Found<ComputeEntry> | null> {
  const { when, layouts, directory } = wish;
  const key = computeKey(wish);
  const stored = storedMeasurements(directory).find(entry => entry.kind === 'compute' && entry.key === key);
  const known = stored?.kind === 'compute' ? stored : null;
  if (known && when !== 'fresh' && layouts.every(layout => layout in known.layouts))
    return { entry: known, fresh: false };
  if (when === 'stored') return null;
  const measured = await measure(wish, key);
  const entry = { ...measured, layouts: { ...known?.layouts, ...measured.layouts } };
  storeMeasurement(entry, directory);
  return { entry, fresh: true };
}

interface Bench {
  readonly compute: Compute;
  readonly input: Input;
  readonly output: ReturnType<Arenas['tensor']>;
  readonly weights: number;
  readonly ms: number;
}

async function measure(wish: ComputeWish, key: string): Promise<ComputeEntry> {
  const { kernels, lanes, exact, when, onProgress = () => {} } = wish;
  const arenas = new Arenas();
  const compute = new Compute(arenas, { lanes, exact, scratchFloats: COLUMNS });
  const input = compute.input(BATCH, COLUMNS);
  // the shortest rows have two bits a weight
  const output = arenas.tensor(BATCH, Math.max(CACHED_BYTES_PER_LANE * lanes, STREAMED_BYTES / SLICES) / (COLUMNS / 4));
  const { offset } = arenas.place(STREAMED_BYTES, 'scratch');
  arenas.commit();
  new Uint8Array(arenas.memories[0].buffer, offset, STREAMED_BYTES).fill(FILL);
  await compute.start(kernels);
  try {
    const bench: Bench = { compute, input, output, weights: offset, ms: when === 'fresh' ? LONG_MS : SHORT_MS };
    arenas.floats(input.x).fill(0.5);
    compute.quantise(input, BATCH);
    // float32 needs the least arithmetic for a byte
    const layouts = [...new Set<Layout>(['f32', ...wish.layouts])];
    const rates: ComputeEntry['layouts'] = {};
    for (const [done, layout] of layouts.entries()) {
      onProgress(done, layouts.length);
      rates[layout] = ratesOf(bench, layout);
    }
    onProgress(layouts.length, layouts.length);
    const memoryBytesPerSecond = Math.max(...Object.values(rates).map(rate => rate.streamedBytesPerSecond));
    const measured = new Date().toISOString();
    return { kind: 'compute', key, measured, memoryBytesPerSecond, jobUs: jobTime(bench), layouts: rates };
  } finally {
    await compute.close();
  }
}

function ratesOf(bench: Bench, layout: Layout): ComputeEntry['layouts'][string] {
  const { compute } = bench;
  const rowBytes = layoutBytes(layout, 16, COLUMNS) / 16;
  const panels = (bytes: number) => Math.max(1, Math.floor(bytes / rowBytes / 16)) * 16;
  const cached = panels(CACHED_BYTES_PER_LANE * compute.lanes.count);
  const slice = panels(STREAMED_BYTES / SLICES);
  const sliceBytes = slice * rowBytes;
  const streamed = repeated(bench, i => {
    multiply(bench, matrixAt(layout, slice, bench.weights + (i % SLICES) * sliceBytes), 1);
    return sliceBytes;
  });
  const inCache = matrixAt(layout, cached, bench.weights);
  const macs = (n: number) =>
    repeated(bench, () => {
      multiply(bench, inCache, n);
      return cached * COLUMNS * n;
    });
  return { streamedBytesPerSecond: streamed, macsPerSecond: macs(1), batchedMacsPerSecond: macs(BATCH) };
}

function matrixAt(layout: Layout, rows: number, offset: number): Matrix {
  return matrixOf(layout, rows, COLUMNS, [{ arena: 0, offset, firstRow: 0, rows }]);
}

function multiply({ compute, input, output }: Bench, w: Matrix, n: number): void {
  compute.linear(w, input, output, n);
  compute.run();
}

/** Amount per second, the best of several rounds: other programs may take some of the time. What comes before them is not counted. */
function repeated({ ms }: Bench, once: (i: number) => number): number {
  once(0);
  let best = 0;
  let i = 1;
  for (let round = 0; round < ROUNDS; round++) {
    const began = performance.now();
    let amount = 0;
    let spent = 0;
    do {
      amount += once(i++);
      spent = performance.now() - began;
    } while (spent < ms / ROUNDS);
    best = Math.max(best, amount / (spent / 1000));
  }
  return best;
}

/** Microseconds of a job with hardly any work for each lane. */
function jobTime(bench: Bench): number {
  const { compute } = bench;
  const tiny = matrixAt('f32', 16 * compute.lanes.count, bench.weights);
  for (let i = 0; i < WARM_JOBS; i++) multiply(bench, tiny, 1);
  return (
    1e6 /
    repeated(bench, () => {
      multiply(bench, tiny, 1);
      return 1;
    })
  );
}
