/** What the kernel tests share: the implementations under test, with call counters, and the scenes of every kernel. */

import { expect } from 'vitest';
import { BLOCKS, type BlockLayout, type Layout } from '../quant/layouts.ts';
import {
  ALL,
  ATTENTION_SCENES,
  COLUMNS,
  DELTA_SCENES,
  each,
  ODD_COLUMNS,
  pick,
  ROUTING_SCENES,
  ROW_SCENES,
} from './cases/test-support.ts';
import * as cases from './cases.ts';
import type { KernelName, Kernels, NativeName } from './kernels.ts';
import { nativeVariants } from './native/native.ts';
import { createReferenceKernels } from './reference/reference.ts';
import type { Op, Scene } from './scene.ts';
import { kernelsFor } from './select.ts';
import { compileWasm, type WasmVariant } from './wasm/wasm.ts';

const PAGES = 256;

export const FLOAT_LAYOUTS: readonly Layout[] = ['f32', 'bf16', 'f16'];
export const TILE_LAYOUTS: readonly Layout[] = ['q4g64', 'q4g64-f32', 'q8g64', 'q8g64-f32'];
export const BLOCK_LAYOUTS = Object.keys(BLOCKS) as BlockLayout[];
export const memory = new WebAssembly.Memory({ initial: PAGES, maximum: PAGES, shared: true });
export const reference = createReferenceKernels(memory);

export interface Counted {
  readonly name: KernelName;
  readonly kernels: Kernels;
  /** Calls so far, by kernel. */
  readonly calls: Partial<Record<Op, number>>;
}

/** Wraps every kernel in a counter. */
export function counted(inner: Kernels): Counted {
  const calls: Partial<Record<Op, number>> = {};
  const kernels: Record<string, unknown> = { name: inner.name };
  for (const op of Object.keys(inner).filter(key => key !== 'name') as Op[]) {
    kernels[op] = (...args: number[]) => {
      calls[op] = (calls[op] ?? 0) + 1;
      return (inner[op] as (...args: number[]) => unknown)(...args);
    };
  }
  return { name: inner.name, kernels: kernels as unknown as Kernels, calls };
}

/** Variants that cannot run here, with the reason: only missing instructions or a missing C compiler count. */
export const MISSING: { name: KernelName; reason: string }[] = [];

function load(variant: WasmVariant): Counted[] {
  try {
    return [counted(kernelsFor(`wasm-${variant}`, compileWasm(variant))(memory))];
  } catch (error) {
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    MISSING.push({ name: `wasm-${variant}`, reason: error.message });
    return [];
  }
}

function loadNativeVariants(): Counted[] {
  const able = nativeVariants();
  const wanted: readonly NativeName[] = NATIVE_OF[process.arch] ?? [];
  const reason = able.length > 0 ? 'not for this processor' : 'no native kernels in this build';
  MISSING.push(...wanted.filter(name => !able.includes(name)).map(name => ({ name, reason })));
  return able.map(name => counted(kernelsFor(name, null)(memory)));
}

/** What a build for this architecture has. */
const NATIVE_OF: Readonly<Record<string, readonly NativeName[]>> = {
  x64: ['native-avx512vnni', 'native-avxvnni', 'native-avx2', 'native-scalar'],
  arm64: ['native-neon', 'native-scalar'],
};

/** Everything that must agree with the reference. */
export const IMPLEMENTATIONS: readonly Counted[] = [...load('baseline'), ...load('relaxed'), ...loadNativeVariants()];
/** All names of this architecture, whether they run here or not. */
export const ALL_NAMES: readonly KernelName[] = ['wasm-baseline', 'wasm-relaxed', ...(NATIVE_OF[process.arch] ?? [])];

/** Runs a scene with every implementation and fails unless each really ran and gave the reference's bits. */
export function expectSameBits(scene: Scene, pieces: readonly number[] = []): void {
  const wanted = scene.outcome(reference, memory);
  for (const { name, kernels, calls } of IMPLEMENTATIONS) {
    const before = calls[scene.op] ?? 0;
    const got = scene.outcome(kernels, memory, pieces);
    expect(calls[scene.op], `calls of ${name}.${scene.op}`).toBe(before + pieces.length + 1);
    expect(scene.difference(got, wanted), name).toBeNull();
  }
}

const ROWS = [1, 15, 16, 17, 33];
const BATCHES = [1, 2, 3, 4, 5, 7, 16, 33];

/** Shapes of matrices: every column count with every row count, the batch sizes and kinds of values taking turns. */
function* matrices(layouts: readonly Layout[], columns: readonly number[]): Generator<cases.MatrixFacts> {
  let i = 0;
  for (const layout of layouts) {
    for (const c of columns) {
      for (const rows of ROWS) {
        i++;
        const facts = { layout, columns: c, rows, n: pick(BATCHES, i), kind: pick(ALL, i + (i >> 3)) };
        yield { ...facts, indexed: i % 3 === 0, misalign: pick([0, 1, 2, 6], i) };
      }
    }
    for (const kind of ALL) yield { layout, columns: 136, rows: 18, n: 7, kind, indexed: true, misalign: 2 };
    yield { layout, columns: 8192, rows: 17, n: 2, kind: 'ordinary' };
    yield { layout, columns: 8192, rows: 1, n: 5, kind: 'huge' };
  }
}

/** Rows of one, of a few and of many blocks; fp8 also ends inside a block. */
function* blocks(): Generator<cases.MatrixFacts> {
  let i = 0;
  for (const layout of BLOCK_LAYOUTS) {
    const { columns: step } = BLOCKS[layout];
    const widths =
      layout === 'fp8' ? [1, 15, 16, 127, 129, 333, 700, 2048] : [step, 3 * step, 5 * step, 512 + step, 2048];
    for (const columns of widths) {
      for (const kind of ALL) {
        i++;
        yield {
          layout,
          columns,
          rows: pick([1, 3, 5, 9], i),
          n: pick(BATCHES, i >> 2),
          kind,
          indexed: i % 3 === 0,
          misalign: i % 7,
        };
      }
    }
  }
}

/** The scenes of a kernel, lazily: mutation tests stop at the first that tells right from wrong. */
export const SCENES: Readonly<Record<Op, () => Iterable<Scene>>> = {
  quantise: () =>
    each(
      [...COLUMNS, ...ODD_COLUMNS, 8192].flatMap(columns =>
        ([...ALL, 'halves'] as const).map(kind => ({ rows: 2, columns, kind })),
      ),
      cases.quantiseCase,
    ),
  matmulTiles: () => each(matrices(TILE_LAYOUTS, COLUMNS), cases.tilesCase),
  matmulFloat: () => each(matrices(FLOAT_LAYOUTS, [...COLUMNS, ...ODD_COLUMNS]), cases.floatCase),
  matmulExact: () => each([...matrices(TILE_LAYOUTS, [...COLUMNS, 1, 67]), ...blocks()], cases.exactCase),
  embed: () =>
    each(
      [
        ...matrices(TILE_LAYOUTS, [...COLUMNS, 1, 67]),
        ...matrices(FLOAT_LAYOUTS, [...COLUMNS, ...ODD_COLUMNS]),
        ...blocks(),
      ],
      cases.embedCase,
    ),
  ...ROW_SCENES,
  ...ATTENTION_SCENES,
  ...ROUTING_SCENES,
  ...DELTA_SCENES,
};
