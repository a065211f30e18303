/** The largest logits in order: larger ones first, lower ids first among equals (-0 equals +0). All logits must be finite. */

const DIGIT_BITS = 11;
const DIGITS = 1 << DIGIT_BITS;
/** 3 digits of 11 bits hold a key of 32. */
const PASSES = 3;

export class Ranking {
  /** What `above` found, best first. */
  readonly ids: Int32Array;
  readonly #size: number;
  readonly #spare: Int32Array;
  readonly #values: Float32Array;
  readonly #keys: Int32Array;
  readonly #heap: Float32Array;
  readonly #counts = new Int32Array(PASSES * DIGITS);

  /** For `size` logits; `most`: the largest k of `nth`. */
  constructor(size: number, most: number) {
    this.#size = size;
    this.ids = new Int32Array(size);
    this.#spare = new Int32Array(size);
    this.#values = new Float32Array(size);
    this.#keys = new Int32Array(this.#values.buffer);
    this.#heap = new Float32Array(Math.min(most, size));
  }

  /** Ranks all logits of at least `floor`; returns how many they are. */
  above(logits: Float32Array, floor: number): number {
    const count = gather(logits, this.#size, floor, this.#spare, this.#values);
    sortByKey(this.#keys, count, this.#spare, this.ids, this.#counts);
    return count;
  }

  /** The k-th largest logit, 1 <= k <= size. */
  nth(logits: Float32Array, k: number): number {
    const heap = this.#heap;
    keepLargest(logits, this.#size, heap, k);
    return heap[0];
  }
}

/** Into `ids` those of at least `floor`, ascending; into `values` their logits, by id and without -0. */
function gather(logits: Float32Array, size: number, floor: number, ids: Int32Array, values: Float32Array): number {
  let count = 0;
  for (let id = 0; id < size; id++) {
    const logit = logits[id];
    if (logit < floor) continue;
    values[id] = logit + 0;
    ids[count++] = id;
  }
  return count;
}

/**
 * Radix sort, lowest digit first; stable, so that equal keys stay in order of id. `keys`: the bits of float32 numbers by
 * id, replaced by keys that ascend where the numbers fall. `from` is used up.
 */
function sortByKey(keys: Int32Array, count: number, from: Int32Array, into: Int32Array, counts: Int32Array): void {
  counts.fill(0);
  for (let i = 0; i < count; i++) {
    const bits = keys[from[i]];
    const key = bits ^ (~(bits >> 31) & 0x7fffffff);
    keys[from[i]] = key;
    counts[key & (DIGITS - 1)]++;
    counts[DIGITS + ((key >>> DIGIT_BITS) & (DIGITS - 1))]++;
    counts[2 * DIGITS + (key >>> (2 * DIGIT_BITS))]++;
  }
  toPositions(counts);
  distribute(keys, count, from, into, counts, 0);
  distribute(keys, count, into, from, counts, 1);
  distribute(keys, count, from, into, counts, 2);
}

/** How often each digit occurs, to where the first of them goes. */
function toPositions(counts: Int32Array): void {
  for (let pass = 0; pass < PASSES; pass++) {
    let position = 0;
    for (let at = pass * DIGITS; at < (pass + 1) * DIGITS; at++) {
      const count = counts[at];
      counts[at] = position;
      position += count;
    }
  }
}

function distribute(
  keys: Int32Array,
  count: number,
  from: Int32Array,
  into: Int32Array,
  positions: Int32Array,
  pass: number,
): void {
  const shift = pass * DIGIT_BITS;
  const base = pass * DIGITS;
  for (let i = 0; i < count; i++) {
    const id = from[i];
    into[positions[base + ((keys[id] >>> shift) & (DIGITS - 1))]++] = id;
  }
}

/** heap[0..k-1]: the k largest of the first `size` values, the smallest of them on top. */
function keepLargest(values: Float32Array, size: number, heap: Float32Array, k: number): void {
  for (let i = 0; i < k; i++) heap[i] = values[i];
  for (let at = (k >> 1) - 1; at >= 0; at--) siftDown(heap, at, k);
  let smallest = heap[0];
  for (let i = k; i < size; i++) {
    const value = values[i];
    if (value <= smallest) continue;
    heap[0] = value;
    siftDown(heap, 0, k);
    smallest = heap[0];
  }
}

function siftDown(heap: Float32Array, start: number, size: number): void {
  const value = heap[start];
  let at = start;
  for (;;) {
    let child = 2 * at + 1;
    if (child >= size) break;
    if (child + 1 < size && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= value) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = value;
}
