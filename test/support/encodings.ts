/**
 * Published encodings written by the simplest means, for tests and for the table of qualities: a float matrix in, its tensors and the
 * values that these mean out. Written from the descriptions of the formats and not from the code that reads them.
 */

import type { SafetensorsDtype } from '../../src/formats/checkpoint-types.ts';

export interface EncodedTensor {
  /** Replaces `.weight` at the end of the matrix's name. */
  readonly suffix: string;
  readonly dtype: SafetensorsDtype;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

export interface Encoded {
  readonly tensors: readonly EncodedTensor[];
  /** What the tensors mean: float32 [rows, columns]. */
  readonly values: Float32Array;
}

export interface Encoding {
  readonly name: string;
  /** Fields of config.json that belong to it. */
  readonly config: Readonly<Record<string, unknown>>;
  /** Columns that it needs to be a multiple of. */
  readonly step: number;
  encode(values: Float32Array, rows: number, columns: number): Encoded;
}

const f = Math.fround;
const bytesOf = (array: Float32Array | Uint16Array | Uint32Array | Int8Array) =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);

function largest(values: Float32Array, from: number, count: number): number {
  let max = 0;
  for (let i = from; i < from + count; i++) max = Math.max(max, Math.abs(values[i]));
  return max;
}

/** Ties to even, as the published quantisers round. */
function roundEven(x: number): number {
  const floor = Math.floor(x);
  const rest = x - floor;
  if (rest !== 0.5) return Math.round(x);
  return floor % 2 === 0 ? floor : floor + 1;
}

// ---- integers with float32 scales beside them -----------------------------------------------------------------------

interface IntegerForm {
  readonly name: string;
  readonly least: number;
  readonly most: number;
  /** Columns of one scale; 0 = the row. */
  readonly group: number;
  /** Columns that a matrix must be a multiple of so that the file says which form it is. */
  readonly step: number;
  /** Codes of a row, shifted to be positive, to its bytes. */
  pack(codes: readonly number[]): number[];
}

function nibbles(codes: readonly number[]): number[] {
  const bytes: number[] = [];
  for (let i = 0; i < codes.length; i += 2) bytes.push(codes[i] | ((codes[i + 1] ?? 0) << 4));
  return bytes;
}

function quarters(codes: readonly number[]): number[] {
  const bytes: number[] = [];
  for (let i = 0; i < codes.length; i += 4) {
    bytes.push([0, 1, 2, 3].reduce((byte, k) => byte | ((codes[i + k] ?? 0) << (2 * k)), 0));
  }
  return bytes;
}

/** Per 64: 16 bytes with the low two bits (element 4b + k at bit 2k of byte b), then 8 with the high ones (element 8b + k at bit k). */
function threeBits(codes: readonly number[]): number[] {
  const bytes: number[] = [];
  for (let from = 0; from < codes.length; from += 64) {
    const code = (i: number) => codes[from + i] ?? 4;
    for (let b = 0; b < 16; b++)
      bytes.push([0, 1, 2, 3].reduce((byte, k) => byte | ((code(4 * b + k) & 3) << (2 * k)), 0));
    for (let b = 0; b < 8; b++) {
      bytes.push([0, 1, 2, 3, 4, 5, 6, 7].reduce((byte, k) => byte | ((code(8 * b + k) >> 2) << k), 0));
    }
  }
  return bytes;
}

/** The C engine's containers: U8 codes and F32 scales in `.qs`. */
function sidecar(form: IntegerForm): Encoding {
  return {
    name: form.name,
    config: {},
    step: form.step,
    encode(values, rows, columns) {
      const size = form.group || columns;
      const groups = Math.ceil(columns / size);
      const scales = new Float32Array(rows * groups);
      const decoded = new Float32Array(rows * columns);
      const bytes: number[] = [];
      for (let row = 0; row < rows; row++) {
        const codes: number[] = [];
        for (let g = 0; g < groups; g++) {
          const from = row * columns + g * size;
          const count = Math.min(size, columns - g * size);
          const scale = f(Math.max(largest(values, from, count) / form.most, 1e-8));
          scales[row * groups + g] = scale;
          for (let i = 0; i < count; i++) {
            const code = Math.max(form.least, Math.min(form.most, roundEven(values[from + i] / scale)));
            decoded[from + i] = code * scale;
            codes.push(code - form.least);
          }
        }
        bytes.push(...form.pack(codes));
      }
      const packed = Uint8Array.from(bytes);
      return {
        tensors: [
          { suffix: '.weight', dtype: 'U8', shape: [rows, packed.length / rows], bytes: packed },
          { suffix: '.weight.qs', dtype: 'F32', shape: [rows, groups], bytes: bytesOf(scales) },
        ],
        values: decoded,
      };
    },
  };
}

const INT8_ROW = sidecar({
  name: 'int8-row',
  least: -128,
  most: 127,
  group: 0,
  step: 64,
  // two's complement, not shifted
  pack: codes => codes.map(code => (code - 128) & 255),
});
const INT4_ROW = sidecar({ name: 'int4-row', least: -8, most: 7, group: 0, step: 1, pack: nibbles });
const INT4_G64 = sidecar({ name: 'int4-g64', least: -8, most: 7, group: 64, step: 64, pack: nibbles });
const INT3_G64 = sidecar({ name: 'int3-g64', least: -4, most: 3, group: 64, step: 64, pack: threeBits });
const INT2_ROW = sidecar({ name: 'int2-row', least: -2, most: 1, group: 0, step: 1, pack: quarters });

// ---- floating-point blocks ------------------------------------------------------------------------------------------

/** Every value of e4m3 by its byte; NaN for 0x7f and 0xff. */
const E4M3: readonly number[] = Array.from({ length: 256 }, (_, byte) => {
  const exponent = (byte >> 3) & 15;
  const fraction = byte & 7;
  if ((byte & 127) === 127) return Number.NaN;
  const magnitude = exponent === 0 ? fraction * 2 ** -9 : (1 + fraction / 8) * 2 ** (exponent - 7);
  return byte & 128 ? -magnitude : magnitude;
});
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

/** Index of the nearest entry of a table. */
function nearest(table: readonly number[], value: number): number {
  let best = 0;
  for (let i = 1; i < table.length; i++) {
    if (Math.abs(table[i] - value) < Math.abs(table[best] - value)) best = i;
  }
  return best;
}

const FP8_BLOCK = 128;

const FP8: Encoding = {
  name: 'fp8',
  config: {
    quantization_config: { quant_method: 'fp8', fmt: 'e4m3', weight_block_size: [FP8_BLOCK, FP8_BLOCK] },
  },
  step: 1,
  encode(values, rows, columns) {
    const across = Math.ceil(columns / FP8_BLOCK);
    const down = Math.ceil(rows / FP8_BLOCK);
    const scales = new Float32Array(down * across);
    const codes = new Uint8Array(rows * columns);
    const decoded = new Float32Array(rows * columns);
    for (let row = 0; row < rows; row++) {
      for (let c = 0; c < columns; c++) {
        const block = Math.floor(row / FP8_BLOCK) * across + Math.floor(c / FP8_BLOCK);
        scales[block] = Math.max(scales[block], Math.abs(values[row * columns + c]) / 448);
      }
    }
    for (let i = 0; i < codes.length; i++) {
      const [row, c] = [Math.floor(i / columns), i % columns];
      const scale = scales[Math.floor(row / FP8_BLOCK) * across + Math.floor(c / FP8_BLOCK)] || 1;
      codes[i] = nearest(E4M3, values[i] / scale);
      decoded[i] = E4M3[codes[i]] * scale;
    }
    return {
      tensors: [
        { suffix: '.weight', dtype: 'F8_E4M3', shape: [rows, columns], bytes: codes },
        { suffix: '.weight_scale_inv', dtype: 'F32', shape: [down, across], bytes: bytesOf(scales) },
      ],
      values: decoded,
    };
  },
};

/** Microscaling: blocks of 32 with a power of two, so that the largest value is within what e2m1 can say. */
const MXFP4: Encoding = {
  name: 'mxfp4',
  config: {},
  step: 32,
  encode(values, rows, columns) {
    const codes = new Uint8Array((rows * columns) / 2);
    const scales = new Uint8Array((rows * columns) / 32);
    const decoded = new Float32Array(rows * columns);
    for (let block = 0; block < scales.length; block++) {
      const max = largest(values, block * 32, 32);
      const exponent = max === 0 ? -127 : Math.max(-127, Math.floor(Math.log2(max)) - 2);
      scales[block] = exponent + 127;
      for (let i = block * 32; i < (block + 1) * 32; i++) {
        const code = nearest(E2M1, values[i] / 2 ** exponent);
        codes[i >> 1] |= code << (i % 2 === 0 ? 0 : 4);
        decoded[i] = E2M1[code] * 2 ** exponent;
      }
    }
    return {
      tensors: [
        { suffix: '.weight_packed', dtype: 'U8', shape: [rows, columns / 2], bytes: codes },
        { suffix: '.weight_scale', dtype: 'U8', shape: [rows, columns / 32], bytes: scales },
      ],
      values: decoded,
    };
  },
};

const NVFP4: Encoding = {
  name: 'nvfp4',
  config: {},
  step: 16,
  encode(values, rows, columns) {
    const whole = f(largest(values, 0, values.length) / (6 * 448)) || f(2 ** -20);
    const codes = new Uint8Array((rows * columns) / 2);
    const scales = new Uint8Array((rows * columns) / 16);
    const decoded = new Float32Array(rows * columns);
    for (let block = 0; block < scales.length; block++) {
      scales[block] = nearest(E4M3, largest(values, block * 16, 16) / 6 / whole) & 127;
      const scale = E4M3[scales[block]];
      for (let i = block * 16; i < (block + 1) * 16; i++) {
        const code = scale === 0 ? 0 : nearest(E2M1, values[i] / (scale * whole));
        codes[i >> 1] |= code << (i % 2 === 0 ? 0 : 4);
        decoded[i] = E2M1[code] * scale * whole;
      }
    }
    return {
      tensors: [
        { suffix: '.weight', dtype: 'U8', shape: [rows, columns / 2], bytes: codes },
        { suffix: '.weight_scale', dtype: 'F8_E4M3', shape: [rows, columns / 16], bytes: scales },
        { suffix: '.weight_scale_2', dtype: 'F32', shape: [], bytes: bytesOf(Float32Array.of(whole)) },
      ],
      values: decoded,
    };
  },
};

// ---- compressed-tensors ---------------------------------------------------------------------------------------------

/** Scales as float32, one for each row; codes plus 8, eight in a word. */
const INT4_PACKED: Encoding = {
  name: 'int4-packed',
  config: {
    quantization_config: {
      quant_method: 'compressed-tensors',
      format: 'pack-quantized',
      config_groups: {
        group_0: { weights: { num_bits: 4, type: 'int', symmetric: true, strategy: 'channel' }, targets: ['Linear'] },
      },
    },
  },
  step: 8,
  encode(values, rows, columns) {
    const { tensors, values: decoded } = INT4_ROW.encode(values, rows, columns);
    const [weight, scales] = tensors;
    return {
      tensors: [
        { suffix: '.weight_packed', dtype: 'I32', shape: [rows, columns / 8], bytes: weight.bytes },
        { suffix: '.weight_scale', dtype: 'F32', shape: [rows, 1], bytes: scales.bytes },
      ],
      values: decoded,
    };
  },
};

export const ENCODINGS: readonly Encoding[] = [
  FP8,
  MXFP4,
  NVFP4,
  INT4_PACKED,
  INT8_ROW,
  INT4_ROW,
  INT4_G64,
  INT3_G64,
  INT2_ROW,
];

export function encodingNamed(name: string): Encoding {
  const encoding = ENCODINGS.find(each => each.name === name);
  if (!encoding) throw new Error(`no encoding ${name}`);
  return encoding;
}
