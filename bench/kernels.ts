/**
 * Speed of the matrix kernels and of attention on one thread: GB/s of weights streamed from a buffer larger than any cache and from one
 * that fits the second cache, and GMAC/s by number of activation rows. The variants take turns in every round, so that
 * a noisy neighbour meets both; the best round of each counts.
 */

import { cpus } from 'node:os';
import { parseArgs } from 'node:util';
import { UsageError } from '../src/common/errors.ts';
import { GIB, MIB } from '../src/common/units.ts';
import { blockWeights } from '../src/kernels/cases/blocks.ts';
import type { KernelChoice, KernelName, Kernels } from '../src/kernels/kernels.ts';
import { nativeVariants } from '../src/kernels/native/native.ts';
import { RandomValues } from '../src/kernels/random-values.ts';
import { kernelsFor, selectKernels } from '../src/kernels/select.ts';
import { compileWasm } from '../src/kernels/wasm/wasm.ts';
import {
  groupsOf,
  isBlockLayout,
  isTileLayout,
  LAYOUT_ID,
  type Layout,
  layoutBytes,
  panelsOf,
} from '../src/quant/layouts.ts';
import { measureAttention, printAttention } from './attention.ts';

const LAYOUTS: readonly Layout[] = ['q4g64', 'q8g64', 'bf16', 'f32', 'fp8', 'mxfp4', 'q4_0', 'q8_0', 'q4_k', 'q6_k'];
const COLUMNS = 2048;
const CACHE_BYTES = MIB;
const MEMORY_BYTES = 256 * MIB;
const MAX_N = 64;
const ROUNDS = 7;
/** One timed batch of calls, when in cache. */
const BATCH_MS = 20;

// Where things lie in the arena.
const PAGE = 65536;
const X = PAGE;
const Y = X + MAX_N * COLUMNS * 4;
const W = Y + GIB / 4;
// A decoded row of a block layout, before the weights.
const SCRATCH = W - COLUMNS * 4;

export interface KernelFigure {
  layout: Layout;
  kernels: KernelName;
  /** Where the weights are: in cache, or streamed from memory. */
  from: 'cache' | 'memory';
  /** Activation rows. */
  n: number;
  gigabytes_per_s: number;
  gmac_per_s: number;
}

interface Task {
  layout: Layout;
  from: 'cache' | 'memory';
  n: number;
  rows: number;
}

function rowsIn(layout: Layout, bytes: number): number {
  return Math.floor(bytes / layoutBytes(layout, 16, COLUMNS)) * 16;
}

/** One call over all rows. */
function call(kernels: Kernels, { layout, n, rows }: Task): void {
  const id = LAYOUT_ID[layout];
  if (isBlockLayout(layout)) {
    kernels.matmulExact(id, W, COLUMNS, X, COLUMNS, 0, Y, rows, 0, n, SCRATCH, 0, rows);
    return;
  }
  if (!isTileLayout(layout)) {
    kernels.matmulFloat(id, W, COLUMNS, X, COLUMNS, 0, Y, rows, 0, n, 0, rows);
    return;
  }
  const groups = groupsOf(COLUMNS);
  const scales = X + MAX_N * COLUMNS;
  const sums = scales + MAX_N * groups * 4;
  kernels.matmulTiles(id, W, rows, groups, X, scales, sums, 0, Y, rows, 0, n, 0, panelsOf(rows));
}

/** Milliseconds per call, the mean of `calls`. */
function time(kernels: Kernels, task: Task, calls: number): number {
  const start = performance.now();
  for (let i = 0; i < calls; i++) call(kernels, task);
  return (performance.now() - start) / calls;
}

function measure(variants: readonly Kernels[], task: Task): KernelFigure[] {
  const calls = variants.map(kernels => Math.max(1, Math.round(BATCH_MS / time(kernels, task, 1))));
  const best = variants.map(() => Number.POSITIVE_INFINITY);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [i, kernels] of variants.entries()) best[i] = Math.min(best[i], time(kernels, task, calls[i]));
  }
  const { layout, from, n, rows } = task;
  return variants.map((kernels, i) => ({
    layout,
    kernels: kernels.name,
    from,
    n,
    gigabytes_per_s: layoutBytes(layout, rows, COLUMNS) / best[i] / 1e6,
    gmac_per_s: (rows * COLUMNS * n) / best[i] / 1e6,
  }));
}

/** Weights and activations of small ordinary numbers: denormals and NaN would cost time that real models do not. */
function fill(memory: WebAssembly.Memory): void {
  new Float32Array(memory.buffer).fill(0.0123);
}

/** As fill, for the scales that a block layout has in its own encoding: some rows, again and again. */
function fillBlocks(memory: WebAssembly.Memory, layout: Layout): void {
  if (!isBlockLayout(layout)) return;
  const rows = blockWeights(new RandomValues(1), layout, 64, COLUMNS, 'ordinary');
  // hardly any trained weight is a denormal in fp8; a processor can be several times slower with them
  if (layout === 'fp8') for (let i = 0; i < rows.length; i++) if ((rows[i] & 0x78) === 0) rows[i] |= 8;
  const weights = new Uint8Array(memory.buffer, W, MEMORY_BYTES);
  for (let at = 0; at + rows.length <= weights.length; at += rows.length) weights.set(rows, at);
}

const HELP = `usage: npm run bench -- kernels [options]
  --layout NAME   only this layout (may be repeated): ${Object.keys(LAYOUT_ID).join(', ')}
                  default: ${LAYOUTS.join(', ')}
  --no-attention  only matrices
  --kernels NAME  only these kernels (may be repeated); default: all that run here but the reference
  --json          one JSON object`;

function parse(args: string[]) {
  const options = {
    layout: { type: 'string', multiple: true },
    kernels: { type: 'string', multiple: true },
    'no-attention': { type: 'boolean', default: false },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  } as const;
  try {
    return parseArgs({ args, options }).values;
  } catch (cause) {
    throw new UsageError('BAD_OPTION', cause instanceof Error ? cause.message : String(cause), { hint: HELP, cause });
  }
}

export async function run(args: string[]): Promise<void> {
  const values = parse(args);
  if (values.help) {
    console.log(HELP);
    return;
  }
  const layouts = values.layout ?? LAYOUTS;
  for (const name of layouts) {
    if (!Object.hasOwn(LAYOUT_ID, name)) {
      throw new UsageError('BAD_OPTION', `--layout ${name} is not a layout`, { hint: HELP });
    }
  }
  const pages = (W + MEMORY_BYTES) / PAGE + 1;
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true });
  const variants = values.kernels?.length
    ? values.kernels.map(name => selectKernels(name as KernelChoice).factory(memory))
    : [
        kernelsFor('wasm-baseline', compileWasm('baseline'))(memory),
        kernelsFor('wasm-relaxed', compileWasm('relaxed'))(memory),
        ...nativeVariants().map(name => kernelsFor(name, null)(memory)),
      ];
  const figures: KernelFigure[] = [];
  for (const layout of layouts as Layout[]) {
    fill(memory);
    fillBlocks(memory, layout);
    const cached = rowsIn(layout, CACHE_BYTES / 2);
    // The optimising compiler must have replaced the first tier before the clock counts.
    for (const kernels of variants)
      for (let i = 0; i < 200; i++) call(kernels, { layout, from: 'cache', n: 7, rows: 16 });
    await new Promise(resolve => setTimeout(resolve, 300));
    for (const n of [1, 4, 16, MAX_N]) figures.push(...measure(variants, { layout, from: 'cache', n, rows: cached }));
    figures.push(...measure(variants, { layout, from: 'memory', n: 1, rows: rowsIn(layout, MEMORY_BYTES) }));
  }
  const attention = values['no-attention'] ? [] : measureAttention(variants, memory, W);
  const machine = { cpu: cpus()[0].model, cores: cpus().length, node: process.version };
  if (values.json) console.log(JSON.stringify({ machine, columns: COLUMNS, figures, attention }, null, 2));
  else {
    printTable(machine, figures);
    if (attention.length > 0) printAttention(attention);
  }
}

function printTable(machine: { cpu: string; cores: number; node: string }, figures: readonly KernelFigure[]): void {
  console.log(`${machine.cpu}, ${machine.cores} cores, Node ${machine.node}; one thread, ${COLUMNS} columns`);
  console.log('layout   kernels            weights in   rows of x     GB/s   GMAC/s');
  for (const f of figures) {
    const name = `${f.layout.padEnd(8)} ${f.kernels.padEnd(18)} ${f.from.padEnd(9)}`;
    const rates = `${f.gigabytes_per_s.toFixed(1).padStart(9)}${f.gmac_per_s.toFixed(1).padStart(9)}`;
    console.log(`${name}${String(f.n).padStart(13)}${rates}`);
  }
}
