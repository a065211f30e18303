/**
 * The one interface between the engine and arithmetic. Every implementation (reference, WASM, native) gives the
 * same bits; kernels/README.md is the contract. All pointers are byte offsets into ONE arena; 0 means "none".
 * Activations are float32, 16-byte aligned and row-major; weights may start at any byte. Work is split only by the last
 * two arguments (a half-open range of output rows, panels, items or elements), never along a reduction.
 */

/** Tokens per KV block: K rows [KV_BLOCK, kvHeads*headDim], then V rows of the same shape, float32 or bfloat16. */
export const KV_BLOCK = 64;

/** Floats of scratch that attention needs per key: four queries are worked on together. */
export const ATTENTION_SCRATCH = 4;

export type NativeName = 'native-avx512vnni' | 'native-avxvnni' | 'native-avx2' | 'native-neon' | 'native-scalar';
export type KernelName = 'reference' | 'wasm-baseline' | 'wasm-relaxed' | NativeName;
/** What a user may ask for. `auto`: the fastest that passes its self-test; `native` and `wasm`: the fastest of that kind. */
export type KernelChoice = 'auto' | 'native' | 'wasm' | KernelName;
/** Every choice, in the order of the help text. */
export const KERNEL_CHOICES: readonly KernelChoice[] = [
  'auto',
  'native',
  'native-avx512vnni',
  'native-avxvnni',
  'native-avx2',
  'native-neon',
  'native-scalar',
  'wasm',
  'wasm-relaxed',
  'wasm-baseline',
  'reference',
];

export interface Kernels {
  readonly name: KernelName;

  /**
   * Activations to int8 per group of 64: x f32 [rows, columns] -> codes i8 [rows, groups*64] (padded with 0),
   * scales f32 [rows, groups], sums i32 [rows, groups] (sum of the codes of a group).
   * scale = max|x|/127; a scale below 2^-126 makes the group zero; a non-finite x makes the scale NaN and the codes 0.
   */
  quantise(x: number, columns: number, codes: number, scales: number, sums: number, row0: number, row1: number): void;

  /**
   * y[yRow, r] = sum over groups of float(int dot) * (wScale * xScale), for tile layouts. `rows` = real rows of w (padding
   * rows are not written). For i < n: activation row xIndex[i] (or i), output row yIndex[i] (or i); the index tables are
   * i32. yStride counts floats. Range: row panels of 16.
   */
  matmulTiles(
    layout: number,
    w: number,
    rows: number,
    groups: number,
    codes: number,
    scales: number,
    sums: number,
    xIndex: number,
    y: number,
    yStride: number,
    yIndex: number,
    n: number,
    panel0: number,
    panel1: number,
  ): void;

  /** y[yRow, r] = dot16(w row r, x row), for float layouts (w decoded to float32). xStride, yStride count floats. Range: rows of w. */
  matmulFloat(
    layout: number,
    w: number,
    columns: number,
    x: number,
    xStride: number,
    xIndex: number,
    y: number,
    yStride: number,
    yIndex: number,
    n: number,
    row0: number,
    row1: number,
  ): void;

  /**
   * As matmulFloat for tile layouts: rows are decoded to float32 first (`activations: exact`).
   * scratch: `columns` floats owned by this lane.
   */
  matmulExact(
    layout: number,
    w: number,
    columns: number,
    x: number,
    xStride: number,
    xIndex: number,
    y: number,
    yStride: number,
    yIndex: number,
    n: number,
    scratch: number,
    row0: number,
    row1: number,
  ): void;

  /** y[i, :] = row ids[i] of w, decoded (any layout). ids: i32. Range: i. */
  embed(layout: number, w: number, columns: number, ids: number, y: number, row0: number, row1: number): void;

  /** y = weight * (x * (1 / sqrt(mean(x^2) + eps))), weight f32 [columns]. y may be x. Range: rows. */
  rmsNorm(x: number, weight: number, y: number, columns: number, eps: number, row0: number, row1: number): void;

  /**
   * Rotates pairs (i, i + rotaryDim/2) of every head in place; x [rows, heads*headDim].
   * table: per position rotaryDim/2 cosines, then rotaryDim/2 sines. positions: i32 [rows]. Range: rows.
   */
  rope(
    x: number,
    heads: number,
    headDim: number,
    rotaryDim: number,
    table: number,
    positions: number,
    row0: number,
    row1: number,
  ): void;

  /**
   * Two-pass softmax attention over KV blocks. q, out: [rows, heads*headDim]. positions: i32 [rows]; row r sees keys
   * 0..positions[r]. tables: i32 [rows], offset of the row's block table (i32 block offsets, multiples of 4). layout: id
   * of what the blocks hold, f32 or bf16; a bfloat16 is decoded exactly, and then all is as with float32. Head h reads KV
   * head h / (heads/kvHeads). scratch: ATTENTION_SCRATCH floats per key, owned by this lane. Range: items = row*heads + head.
   */
  attention(
    q: number,
    out: number,
    heads: number,
    kvHeads: number,
    headDim: number,
    scale: number,
    positions: number,
    tables: number,
    layout: number,
    scratch: number,
    item0: number,
    item1: number,
  ): void;

  /** y = silu(gate) * up, elementwise; y may be gate. Range: elements. */
  swiglu(gate: number, up: number, y: number, element0: number, element1: number): void;

  /** x += y. Range: elements. */
  add(x: number, y: number, element0: number, element1: number): void;

  /** x *= factor. Range: elements. */
  scale(x: number, factor: number, element0: number, element1: number): void;

  /** x = min(max(x, -limit), limit). Range: elements. */
  clamp(x: number, limit: number, element0: number, element1: number): void;

  /**
   * y = x as bfloat16, rounded to nearest, ties to even; of a NaN the upper half, made quiet. y: 16-bit elements at a
   * multiple of 2, apart from x. Range: elements.
   */
  toBf16(x: number, y: number, element0: number, element1: number): void;

  /** y = softmax(x) per row of `columns`. y may be x. Range: rows. */
  softmax(x: number, y: number, columns: number, row0: number, row1: number): void;

  /**
   * The k largest of each row, descending, ties to the lower index: ids i32 [rows, k], weights f32 [rows, k].
   * normalise = 1 divides the weights by their sum. Range: rows.
   */
  topK(
    x: number,
    columns: number,
    k: number,
    ids: number,
    weights: number,
    normalise: number,
    row0: number,
    row1: number,
  ): void;

  /** x[r] += sum over slots s = 0..k-1, in order, of weights[r, s] * parts[r*k + s]. Range: rows. */
  combine(x: number, parts: number, weights: number, k: number, columns: number, row0: number, row1: number): void;

  /** 1 when all `elements` floats at x are finite, else 0. */
  allFinite(x: number, elements: number): number;
}

/** Makes the kernels of one implementation for one arena. */
export type KernelFactory = (memory: WebAssembly.Memory) => Kernels;
