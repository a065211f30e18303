/** Speed of attention on one thread, over float32 and over bfloat16 keys and values. */

import { MIB } from '../src/common/units.ts';
import { ATTENTION_SCRATCH, type KernelName, type Kernels, KV_BLOCK } from '../src/kernels/kernels.ts';
import { LAYOUT_ID, layoutBytes } from '../src/quant/layouts.ts';

const HEADS = 16;
const KV_HEADS = 4;
const HEAD_DIM = 128;
/** A history that the second cache holds, and one that no cache holds. */
const KEYS = [128, 32768];
/** Decoding; rows of a prompt, which share their history. */
const ROWS = [1, 4];
const ROUNDS = 7;
/** One timed batch of calls. */
const BATCH_MS = 20;
/** Room for the largest task. */
const BYTES = 160 * MIB;
/** About 0.0123 as float32, and in both halves as bfloat16: denormals would cost time that real models do not. */
const NUMBER = 0x3c493c49;

export interface AttentionFigure {
  kv: 'f32' | 'bf16';
  kernels: KernelName;
  keys: number;
  /** Rows that share the history. */
  rows: number;
  /** Keys and values, each byte counted once. */
  gigabytes_per_s: number;
  gmac_per_s: number;
}

type Task = Pick<AttentionFigure, 'kv' | 'keys' | 'rows'>;

/** One call over all heads, and how many bytes of keys and values it reads. */
interface Subject {
  bytes: number;
  call: (kernels: Kernels) => void;
}

/** Lays a task out from `at` on. */
function prepare(memory: WebAssembly.Memory, at: number, { kv, keys, rows }: Task): Subject {
  const blocks = keys / KV_BLOCK;
  new Uint32Array(memory.buffer, at, BYTES / 4).fill(NUMBER);
  const place = (bytes: number): number => {
    const placed = at;
    at += Math.ceil(bytes / 64) * 64;
    return placed;
  };
  const put = (values: readonly number[]): number => {
    const placed = place(values.length * 4);
    new Int32Array(memory.buffer, placed, values.length).set(values);
    return placed;
  };
  const [q, out] = [place(rows * HEADS * HEAD_DIM * 4), place(rows * HEADS * HEAD_DIM * 4)];
  const scratch = place(keys * ATTENTION_SCRATCH * 4);
  const blockBytes = layoutBytes(kv, 2 * KV_BLOCK, KV_HEADS * HEAD_DIM);
  const first = place(blocks * blockBytes);
  const table = put(Array.from({ length: blocks }, (_, block) => first + block * blockBytes));
  const tables = put(Array(rows).fill(table));
  const positions = put(Array.from({ length: rows }, (_, row) => keys - rows + row));
  const [id, items, scale] = [LAYOUT_ID[kv], rows * HEADS, HEAD_DIM ** -0.5];
  return {
    bytes: blocks * blockBytes,
    call: k =>
      k.attention(
        q,
        out,
        HEADS,
        KV_HEADS,
        HEAD_DIM,
        HEAD_DIM,
        scale,
        0,
        0,
        positions,
        tables,
        id,
        0,
        0,
        0,
        scratch,
        0,
        items,
      ),
  };
}

/** Milliseconds per call, the mean of `calls`. */
function time(kernels: Kernels, { call }: Subject, calls: number): number {
  const start = performance.now();
  for (let i = 0; i < calls; i++) call(kernels);
  return (performance.now() - start) / calls;
}

/** The variants take turns; the best round of each counts. BYTES from `at` on are used. */
export function measureAttention(
  variants: readonly Kernels[],
  memory: WebAssembly.Memory,
  at: number,
): AttentionFigure[] {
  const figures: AttentionFigure[] = [];
  for (const keys of KEYS) {
    for (const rows of ROWS) {
      for (const kv of ['f32', 'bf16'] as const) {
        const subject = prepare(memory, at, { kv, keys, rows });
        const calls = variants.map(kernels => Math.max(1, Math.round(BATCH_MS / time(kernels, subject, 3))));
        const best = variants.map(() => Number.POSITIVE_INFINITY);
        for (let round = 0; round < ROUNDS; round++) {
          for (const [i, kernels] of variants.entries()) best[i] = Math.min(best[i], time(kernels, subject, calls[i]));
        }
        for (const [i, { name }] of variants.entries()) {
          const macs = rows * HEADS * keys * HEAD_DIM * 2;
          const rates = { gigabytes_per_s: subject.bytes / best[i] / 1e6, gmac_per_s: macs / best[i] / 1e6 };
          figures.push({ kv, kernels: name, keys, rows, ...rates });
        }
      }
    }
  }
  return figures;
}

export function printAttention(figures: readonly AttentionFigure[]): void {
  console.log(`attention: ${HEADS} heads of ${HEAD_DIM}, ${KV_HEADS} of keys and values`);
  console.log('kv       kernels                  keys    rows of q     GB/s   GMAC/s');
  for (const f of figures) {
    const name = `${f.kv.padEnd(8)} ${f.kernels.padEnd(18)} ${String(f.keys).padStart(10)}`;
    const rates = `${f.gigabytes_per_s.toFixed(1).padStart(9)}${f.gmac_per_s.toFixed(1).padStart(9)}`;
    console.log(`${name}${String(f.rows).padStart(13)}${rates}`);
  }
}
