/** Random weights in the encodings in which models are published: plausible values, made fast, nothing more. */

import {
  GROUP,
  groupsOf,
  layoutBytes,
  panelsOf,
  TILE_BYTES,
  TILE_ROWS,
  type TileLayout,
} from '../src/quant/layouts.ts';

/** Small fast generator; the numbers only have to look random. */
export function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
}

// ---- layouts of our own containers ----------------------------------------------------------------------------------

/** Codes -7..7: with -8 their mean is not 0, all tokens drift the same way and routing stops varying. */
function withoutZeroNibbles(word: number): number {
  const zero = ~(word | (word >>> 1) | (word >>> 2) | (word >>> 3)) & 0x11111111;
  return word | (zero << 3);
}

/** Random codes with scales that make weights of the given standard deviation. */
export function randomTiles(
  layout: TileLayout,
  rows: number,
  columns: number,
  deviation: number,
  random: () => number,
): Uint8Array {
  const bytes = new Uint8Array(layoutBytes(layout, rows, columns));
  const words = new Uint32Array(bytes.buffer, 0, Math.floor(bytes.length / 4));
  const q4 = layout.startsWith('q4');
  for (let i = 0; i < words.length; i++) words[i] = q4 ? withoutZeroNibbles(random()) : random();
  const codeBytes = (TILE_ROWS * GROUP) / (q4 ? 2 : 1);
  const scale = deviation / (q4 ? 4.3 : 74);
  const bits = new Uint32Array(new Float32Array([scale]).buffer)[0] >>> 16;
  for (let tile = 0; tile < panelsOf(rows) * groupsOf(columns); tile++) {
    const at = tile * TILE_BYTES[layout] + codeBytes;
    for (let r = 0; r < TILE_ROWS; r++) {
      bytes[at + r * 2] = bits & 255;
      bytes[at + r * 2 + 1] = bits >>> 8;
    }
  }
  return bytes;
}

export function randomFloats(count: number, scale: number, random: () => number): Uint8Array {
  const values = new Float32Array(count);
  for (let i = 0; i < count; i++) values[i] = ((random() / 2 ** 32) * 2 - 1) * scale;
  return new Uint8Array(values.buffer);
}

export function constantFloats(count: number, value: number): Uint8Array {
  return new Uint8Array(new Float32Array(count).fill(value).buffer);
}

// ---- published encodings ----------------------------------------------------------------------------------------------

/** Distinct bytes of codes; larger tensors repeat them, which nothing can notice. */
const POOL_BYTES = 1 << 22;

/** Bytes of codes without end: a pool again and again, each time from another place. */
export class CodeStream {
  readonly #pool: Uint8Array;
  readonly #random: () => number;

  /** byte: what a random byte becomes. */
  constructor(random: () => number, byte: (random: number) => number = value => value) {
    this.#pool = Uint8Array.from({ length: POOL_BYTES }, () => byte(random() >>> 24));
    this.#random = random;
  }

  /** `count` bytes in pieces that the caller must not change. */
  *take(count: number): Generator<Uint8Array> {
    for (let left = count; left > 0; ) {
      const from = (this.#random() >>> 10) & ~63;
      const bytes = Math.min(left, POOL_BYTES - from);
      yield this.#pool.subarray(from, from + bytes);
      left -= bytes;
    }
  }
}

/** e4m3 codes as a quantiser gives them: the largest of a block is 448, hardly any is denormal. */
export function fp8Codes(random: () => number): CodeStream {
  const table = Uint8Array.from({ length: 256 }, (_, i) =>
    nearestE4m3(FP8_DEVIATION * normalQuantile((i + 0.5) / 256)),
  );
  return new CodeStream(random, byte => table[byte]);
}
/** Standard deviation of what the codes above mean. */
export const FP8_DEVIATION = 112;

function nearestE4m3(value: number): number {
  const sign = value < 0 ? 0x80 : 0;
  let best = 0;
  let error = Infinity;
  for (let code = 0; code < 0x7f; code++) {
    const exponent = code >> 3;
    const mantissa = code & 7;
    const means = exponent === 0 ? mantissa * 2 ** -9 : (8 + mantissa) * 2 ** (exponent - 10);
    if (Math.abs(means - Math.abs(value)) >= error) continue;
    best = code;
    error = Math.abs(means - Math.abs(value));
  }
  return sign | best;
}

/** Of the normal distribution, good to a few hundredths: Tukey's lambda. */
function normalQuantile(p: number): number {
  return 4.91 * (p ** 0.14 - (1 - p) ** 0.14);
}

/** Nibbles of e2m1; their root mean square. */
export const E2M1_DEVIATION = 2.93;

/** bfloat16 of random sign, with magnitudes of two binades about a deviation, which becomes a power of two. */
export function bf16Codes(random: () => number, deviation: number): CodeStream {
  const exponent = 127 + Math.round(Math.log2(deviation)) - 1;
  let upper = true;
  return new CodeStream(random, byte => {
    upper = !upper;
    // sign and most of the exponent, whose lowest bit is in the lower byte
    return upper ? (byte & 0x80) | (exponent >> 1) : byte;
  });
}

/** Q4_K: 256 columns, all sub-blocks with the same scale and the minimum that centres them. */
export function randomQ4K(blocks: number, deviation: number, random: () => number): Uint8Array {
  const d = deviation / (8 * 4.6);
  return randomBlocks(blocks, 144, random, view => {
    view.setUint16(0, halfBits(d), true);
    view.setUint16(2, halfBits(7.5 * d), true);
    // eight scales and eight minima of 8, in six bits each
    for (let i = 4; i < 16; i++) view.setUint8(i, i < 12 ? 0x08 : 0x88);
  });
}

/** Q6_K: 256 columns, all scales 4. */
export function randomQ6K(blocks: number, deviation: number, random: () => number): Uint8Array {
  return randomBlocks(blocks, 210, random, view => {
    for (let i = 192; i < 208; i++) view.setInt8(i, 4);
    view.setUint16(208, halfBits(deviation / (4 * 18.5)), true);
  });
}

function randomBlocks(blocks: number, size: number, random: () => number, scales: (block: DataView) => void) {
  const bytes = new Uint8Array(blocks * size);
  const words = new Uint32Array(bytes.buffer, 0, bytes.length >> 2);
  for (let i = 0; i < words.length; i++) words[i] = random();
  for (let i = 0; i < blocks; i++) scales(new DataView(bytes.buffer, i * size, size));
  return bytes;
}

/** float16 bits of a positive number in the normal range, rounded down. */
function halfBits(value: number): number {
  const exponent = Math.floor(Math.log2(value));
  if (exponent < -14 || exponent > 15) throw new RangeError(`${value} is no normal float16`);
  return ((exponent + 15) << 10) | Math.floor((value / 2 ** exponent - 1) * 1024);
}
