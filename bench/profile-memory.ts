/**
 * How fast this machine reads memory: with the engine's own matrix kernels (one row of activations, the lanes sharing the
 * rows of one large matrix), and with memchr of the C library, which does nothing but read.
 */

import { Worker } from 'node:worker_threads';
import { MIB } from '../src/common/units.ts';
import { WASM_PAGE } from '../src/compute/arenas.ts';
import { Lanes } from '../src/compute/lanes.ts';
import { Op } from '../src/kernels/commands.ts';
import type { KernelChoice } from '../src/kernels/kernels.ts';
import { selectKernels } from '../src/kernels/select.ts';
import { groupsOf, LAYOUT_ID, layoutBytes, type TileLayout } from '../src/quant/layouts.ts';

/** Far more than any cache holds. */
const MEMORY_BYTES = 512 * MIB;
const COLUMNS = 2048;
const LAYOUTS: readonly TileLayout[] = ['q4g64', 'q8g64'];
const WARM_ROUNDS = 3;
const ROUNDS = 8;
/** Activations and results before the weights. */
const WEIGHTS = 32 * MIB;
const CODES = WASM_PAGE;
const OUTPUT = 2 * WASM_PAGE;

/** Words of the readers' control block. */
export const ROUND = 0;
export const ARRIVED = 1;
/** A byte that the memory does not contain. */
export const ABSENT = 2;
const FILLED_WITH = 1;

export interface ReaderData {
  readonly control: SharedArrayBuffer;
  readonly memory: SharedArrayBuffer;
  readonly offset: number;
  readonly length: number;
}

/** Best of several rounds, in bytes per second. */
export interface MemorySpeed {
  readonly how: string;
  readonly lanes: number;
  readonly bytesPerSecond: number;
}

/** One lane and all of them, each way of reading. The memory is given back when nobody holds it any more. */
export async function measureMemory(
  lanes: number,
  kernels: KernelChoice,
  bytes: number = MEMORY_BYTES,
): Promise<MemorySpeed[]> {
  const pages = (WEIGHTS + bytes) / WASM_PAGE;
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  // codes and scales of 0x0101 are small ordinary numbers; pages never written would all be the same page
  new Uint8Array(memory.buffer).fill(FILLED_WITH);
  const speeds: MemorySpeed[] = [];
  for (const count of lanes > 1 ? [1, lanes] : [1]) {
    speeds.push(await withMemchr(memory, count, bytes), ...(await withKernels(memory, count, kernels, bytes)));
  }
  return speeds;
}

async function withKernels(
  memory: WebAssembly.Memory,
  count: number,
  choice: KernelChoice,
  bytes: number,
): Promise<MemorySpeed[]> {
  const selected = selectKernels(choice);
  const lanes = new Lanes(count);
  await lanes.start([memory], selected);
  try {
    return LAYOUTS.map(layout => {
      const rows = Math.floor(bytes / layoutBytes(layout, 16, COLUMNS)) * 16;
      const best = bestSeconds(() => matmul(lanes, layout, rows));
      const bytesPerSecond = layoutBytes(layout, rows, COLUMNS) / best;
      return { how: `${layout} matrix, ${selected.name}`, lanes: count, bytesPerSecond };
    });
  } finally {
    await lanes.close();
  }
}

function matmul(lanes: Lanes, layout: TileLayout, rows: number): void {
  const groups = groupsOf(COLUMNS);
  const scales = CODES + COLUMNS;
  const sums = scales + groups * 4;
  const p = lanes.command(Op.matmulTiles, 0, rows / 16, COLUMNS * 16);
  const arguments_ = [LAYOUT_ID[layout], WEIGHTS, rows, groups, CODES, scales, sums, 0, OUTPUT, rows, 0, 1];
  for (const [i, value] of arguments_.entries()) lanes.control.unsigned[p + i] = value;
  lanes.run();
}

async function withMemchr(memory: WebAssembly.Memory, count: number, bytes: number): Promise<MemorySpeed> {
  const control = new SharedArrayBuffer(8);
  const words = new Int32Array(control);
  const length = Math.floor(bytes / count);
  const shared = memory.buffer as unknown as SharedArrayBuffer;
  const part = (i: number): ReaderData => ({ control, memory: shared, offset: WEIGHTS + i * length, length });
  const workers = Array.from(
    { length: count - 1 },
    (_, i) => new Worker(new URL('./profile-reader.ts', import.meta.url), { workerData: part(i + 1), execArgv: [] }),
  );
  await Promise.all(
    workers.map(
      worker =>
        new Promise((resolve, reject) => {
          worker.once('message', resolve);
          worker.once('error', reject);
        }),
    ),
  );
  const own = Buffer.from(shared, WEIGHTS, length);
  const best = bestSeconds(() => {
    Atomics.store(words, ARRIVED, 0);
    Atomics.add(words, ROUND, 1);
    if (own.indexOf(ABSENT) >= 0) throw new Error('the byte is there');
    while (Atomics.load(words, ARRIVED) < workers.length);
  });
  await Promise.all(workers.map(worker => worker.terminate()));
  return { how: 'memchr', lanes: count, bytesPerSecond: (length * count) / best };
}

function bestSeconds(work: () => void): number {
  for (let i = 0; i < WARM_ROUNDS; i++) work();
  let best = Number.POSITIVE_INFINITY;
  for (let i = 0; i < ROUNDS; i++) {
    const begun = performance.now();
    work();
    best = Math.min(best, performance.now() - begun);
  }
  return best / 1000;
}

/** Two readings may differ by this share of the larger one; else the limit that they give is a guess. */
const MAX_DRIFT = 0.15;

/** The fastest way of reading with that many lanes, in each reading, and their mean. */
export function memoryLimit(readings: readonly (readonly MemorySpeed[])[], lanes: number) {
  const fastest = readings.map(speeds =>
    Math.max(...speeds.filter(speed => speed.lanes === lanes).map(speed => speed.bytesPerSecond)),
  );
  const bytesPerSecond = fastest.reduce((sum, speed) => sum + speed, 0) / fastest.length;
  const drifted = Math.max(...fastest) - Math.min(...fastest) > MAX_DRIFT * Math.max(...fastest);
  return { bytesPerSecond, drifted };
}
