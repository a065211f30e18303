/**
 * The one interface between the engine and arithmetic. Every implementation (reference, WASM, native) gives the
 * same bits; kernels/README.md is the contract. All pointers are byte offsets into ONE arena; 0 means "none".
 * Activations are float32, 16-byte aligned and row-major; weights may start at any byte. Work is split only by the last
 * two arguments (a half-open range of output rows, panels, items or elements), never along a reduction.
 */

/**
 * Tokens per block of what is kept of them: K rows [KV_BLOCK, kvHeads*keyDim], then V rows [KV_BLOCK, kvHeads*valueDim] unless
 * values are part of the key rows; float32 or bfloat16.
 */
export const KV_BLOCK = 64;

/** Floats of scratch that attention needs per key: four queries are worked on together. */
export const ATTENTION_SCRATCH = 4;

/** Words of scratch that selectKeys needs: counts of one byte of a radix selection, twice. */
export const SELECT_SCRATCH = 512;

/** Floats of scratch that deltaRule needs for heads of 256 elements, the longest that are supported. */
export const DELTA_SCRATCH = 3 * 256;

/** Groups of experts among which topK chooses; published models have up to 8. */
export const MAX_EXPERT_GROUPS = 64;

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
   * As matmulFloat for layouts whose rows are decoded to float32 first: block layouts always, tile layouts with
   * `activations: exact`. scratch: `columns` floats owned by this lane.
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

  /**
   * y = weight * (x * (1 / sqrt(mean(x^2) + eps))) for rows of `columns`; weight f32 [columns]. Strides count floats; y may be
   * x with the same stride. Range: rows.
   */
  rmsNorm(
    x: number,
    xStride: number,
    weight: number,
    y: number,
    yStride: number,
    columns: number,
    eps: number,
    row0: number,
    row1: number,
  ): void;

  /**
   * In place, for rows of `columns` that are `stride` floats apart: d = x - mean(x), x = (d * (1 / sqrt(mean(d^2) + eps))) *
   * weight + bias; weight, bias f32 [columns]. Range: rows.
   */
  layerNorm(
    x: number,
    stride: number,
    weight: number,
    bias: number,
    columns: number,
    eps: number,
    row0: number,
    row1: number,
  ): void;

  /**
   * Rotates the `rotaryDim` elements from `first` on in every head, in place; x [rows, heads*headDim]. Pair i is (i, i +
   * rotaryDim/2) of them, or (2i, 2i+1) when `adjacent` is 1. table: per position rotaryDim/2 cosines, then as many sines.
   * positions: i32 [rows]. Range: rows.
   */
  rope(
    x: number,
    heads: number,
    headDim: number,
    first: number,
    rotaryDim: number,
    adjacent: number,
    table: number,
    positions: number,
    row0: number,
    row1: number,
  ): void;

  /**
   * Two-pass softmax attention over blocks of KV_BLOCK tokens. q [rows, heads*keyDim], out [rows, heads*valueDim].
   * positions: i32 [rows]; row r sees keys 0..positions[r]; with window > 0 only keys above positions[r] - window;
   * with a selection those that it names, whatever the window. tables: i32 [rows], offset of the row's block table
   * (i32 block offsets, multiples of 4). layout: id of what the blocks hold, f32 or bf16; a bfloat16 is decoded
   * exactly. Head h reads KV head h / (heads/kvHeads). A block holds K rows, then V rows; with valuesInKeys = 1 a
   * value is the first valueDim elements of its key (kvHeads is 1 then). sinks: f32 [heads] or 0: a logit per head
   * that joins the maximum and, last, the sum, and has no value. selection: 0, or i32 rows of selectionStride words:
   * how many, then positions in ascending order (see selectKeys). Keys are summed in ascending order, lanes by
   * absolute position. scratch: ATTENTION_SCRATCH floats per key, owned by this lane. Range: items = row*heads +
   * head.
   */
  attention(
    q: number,
    out: number,
    heads: number,
    kvHeads: number,
    keyDim: number,
    valueDim: number,
    scale: number,
    window: number,
    sinks: number,
    positions: number,
    tables: number,
    layout: number,
    valuesInKeys: number,
    selection: number,
    selectionStride: number,
    scratch: number,
    item0: number,
    item1: number,
  ): void;

  /**
   * Scores of the lightning indexer (DeepSeek V3.2, GLM-5): scores[r, s] = sum over heads, ascending from +0, of
   * weights[r, h] * max(dot16(q[r, h], key s) * scale, 0), where NaN counts as 0, for s <= positions[r]. q [rows,
   * heads*headDim], weights [rows, heads]; keys: one row of headDim per token in blocks (tables, layout as for
   * attention). scores: rows of `stride` floats. Range: items = row * blocks + block of KV_BLOCK keys.
   */
  indexScores(
    q: number,
    weights: number,
    heads: number,
    headDim: number,
    scale: number,
    positions: number,
    tables: number,
    layout: number,
    scores: number,
    stride: number,
    blocks: number,
    item0: number,
    item1: number,
  ): void;

  /**
   * Per row the k largest of scores[0..positions[r]] (all of them when there are no more than k; ties: the lower position; NaN
   * below everything): selection[r] = how many, then their positions in ascending order. stride, selectionStride (k + 1 or more)
   * count words. scratch: SELECT_SCRATCH words owned by this lane. Range: rows.
   */
  selectKeys(
    scores: number,
    stride: number,
    k: number,
    positions: number,
    selection: number,
    selectionStride: number,
    scratch: number,
    row0: number,
    row1: number,
  ): void;

  /** y = silu(gate) * up, elementwise; y may be gate. Range: elements. */
  swiglu(gate: number, up: number, y: number, element0: number, element1: number): void;

  /** x += y. Range: elements. */
  add(x: number, y: number, element0: number, element1: number): void;

  /** x = min(max(x, -limit), limit). Range: elements. */
  clamp(x: number, limit: number, element0: number, element1: number): void;

  /**
   * y = x as bfloat16, rounded to nearest, ties to even; of a NaN the upper half, made quiet. y: 16-bit elements at a
   * multiple of 2, apart from x. Range: elements.
   */
  toBf16(x: number, y: number, element0: number, element1: number): void;

  /** y = softmax(x) per row of `columns`. y may be x. Range: rows. */
  softmax(x: number, y: number, columns: number, row0: number, row1: number): void;

  /** y = 1 / (1 + exp(-x)). y may be x. Range: elements. */
  sigmoid(x: number, y: number, element0: number, element1: number): void;

  /** x *= sigmoid(gate). Range: elements. */
  sigmoidGate(x: number, gate: number, element0: number, element1: number): void;

  /** x[r, :] *= sigmoid(gates[r]). Range: rows of `columns`. */
  gateRows(x: number, gates: number, columns: number, row0: number, row1: number): void;

  /** x[r, :] += bias. Range: rows of `columns`. */
  addRows(x: number, bias: number, columns: number, row0: number, row1: number): void;

  /**
   * y = (g * sigmoid(alpha * g)) * (u + 1) with g = min(gate, limit), u = min(max(up, -limit), limit), NaN kept
   * (gpt-oss); y may be gate. Range: elements.
   */
  swigluClamped(
    gate: number,
    up: number,
    y: number,
    limit: number,
    alpha: number,
    element0: number,
    element1: number,
  ): void;

  /** Item i: `width` floats from x + i*xStride to y + i*yStride (strides count floats); x and y lie apart. Range: items. */
  copyColumns(
    x: number,
    xStride: number,
    y: number,
    yStride: number,
    width: number,
    item0: number,
    item1: number,
  ): void;

  /**
   * Which experts a row uses. c = x + bias (bias f32 [columns] or 0: c = x). With groups > 1 (MAX_EXPERT_GROUPS at
   * most, all of one size, with k columns or more in those kept) only the keptGroups best groups of neighbours take
   * part; a group's score is its largest c (groupRule 0) or the sum of its two largest (1; groups have two or more
   * then); ties: the lower group. ids i32 [rows, k]: the k largest c, descending, ties to the lower index. weights
   * f32 [rows, k] come from x: as they are (weightRule 0), divided by their sum16 + 1e-20 (1), or softmax over the
   * chosen (2); then times factor. Range: rows.
   */
  topK(
    x: number,
    bias: number,
    columns: number,
    k: number,
    groups: number,
    keptGroups: number,
    groupRule: number,
    ids: number,
    weights: number,
    weightRule: number,
    factor: number,
    row0: number,
    row1: number,
  ): void;

  /**
   * x[r] += (sum over slots s = 0..k-1, in order, of weights[r, s] * parts[r*k + s]) + shared[r]; shared f32 [rows, columns] or
   * 0. Range: rows.
   */
  combine(
    x: number,
    parts: number,
    weights: number,
    k: number,
    shared: number,
    columns: number,
    row0: number,
    row1: number,
  ): void;

  /**
   * Depthwise causal convolution over consecutive tokens, then silu: y[t, c] = silu(sum over j = 0..taps-1, ascending from +0, of
   * w[c, j] * u[t - taps + 1 + j, c]). u, y [rows, channels], apart; w f32 [channels, taps]; tail f32 [taps - 1, channels]: the
   * inputs before row 0, the oldest first; afterwards the last of tail and u. Range: channels.
   */
  convSilu(
    u: number,
    tail: number,
    w: number,
    y: number,
    channels: number,
    taps: number,
    rows: number,
    channel0: number,
    channel1: number,
  ): void;

  /**
   * decay = exp(rate[h] * softplus(a[r, h] + dtBias[h])), beta = sigmoid(b[r, h]); a, b, decay, beta [rows, heads]; decay may be
   * a, beta may be b. rates f32 [heads]: rate as it is (logarithms 0), or the logarithm of -rate (1: rate = -exp(it)). Range: rows.
   */
  deltaGates(
    a: number,
    b: number,
    rates: number,
    logarithms: number,
    dtBias: number,
    decay: number,
    beta: number,
    heads: number,
    row0: number,
    row1: number,
  ): void;

  /**
   * Gated delta rule, token after token (Gated DeltaNet). qkv rows: [q keyHeads*keyDim | k keyHeads*keyDim | v
   * valueHeads*valueDim]; decay, beta [rows, valueHeads]; state f32 [valueHeads, keyDim, valueDim]; out [rows,
   * valueHeads*valueDim]. Value head j uses key head j / (valueHeads/keyHeads); tiled 1: j mod keyHeads. With q = (q * (1 /
   * sqrt(sum16(q^2) + 1e-6))) * (1 / sqrt(keyDim)), k = k * (1 / sqrt(sum16(k^2) + 1e-6)): S *= decay; d = beta * (v - sum_i k_i
   * S_i); S_i += k_i d; out = sum_i q_i S_i, sums over i ascending from +0. scratch: 2*keyDim + valueDim floats of its lane. Range: heads.
   */
  deltaRule(
    qkv: number,
    decay: number,
    beta: number,
    state: number,
    out: number,
    keyHeads: number,
    valueHeads: number,
    tiled: number,
    keyDim: number,
    valueDim: number,
    rows: number,
    scratch: number,
    head0: number,
    head1: number,
  ): void;

  /** 1 when all `elements` floats at x are finite, else 0. */
  allFinite(x: number, elements: number): number;
}

/** Makes the kernels of one implementation for one arena. */
export type KernelFactory = (memory: WebAssembly.Memory) => Kernels;
