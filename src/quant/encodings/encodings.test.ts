/** Every published encoding, from tensors of random bytes to float32: whole, one of several, every other row. */

import { describe, expect, test } from 'vitest';
import { checkPart, contentsOf, loadParts, tensorBytes } from '../../../test/support/checkpoint-bytes.ts';
import { fake } from '../../../test/support/fake-checkpoint.ts';
import type { Checkpoint, Dtype } from '../../formats/checkpoint-types.ts';
import { bfloatToFloat, halfToFloat } from '../../kernels/reference/math.ts';
import type { MatrixRef } from '../refs.ts';
import { resolveRef } from '../resolve.ts';

type Entries = Record<string, [Dtype, number[]]>;

/** An element of a stored matrix: its number among all matrices of the tensor, its row and column. */
type Value = (matrix: number, row: number, column: number) => number;

interface Encoding {
  readonly encoding: string;
  readonly layout: string;
  readonly columns: number;
  readonly config?: Record<string, unknown>;
  /** `lead`: [] or [matrices]. */
  readonly entries: (lead: number[], rows: number) => Entries;
  readonly value: (bytes: (name: string) => Uint8Array, rows: number) => Value;
}

const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];
const nibble = (bytes: Uint8Array, i: number): number => (i % 2 === 0 ? bytes[i >> 1] % 16 : bytes[i >> 1] >> 4);
const power = (byte: number): number => (byte === 255 ? Number.NaN : 2 ** (byte - 127));

function e4m3(byte: number): number {
  const sign = byte & 0x80 ? -1 : 1;
  const exponent = (byte >> 3) & 15;
  const fraction = byte & 7;
  return sign * (exponent === 0 ? fraction * 2 ** -9 : (1 + fraction / 8) * 2 ** (exponent - 7));
}

const NUMBERS: Partial<Record<Dtype, (bytes: Uint8Array, i: number) => number>> = {
  F32: (bytes, i) => new DataView(bytes.slice().buffer).getFloat32(i * 4, true),
  BF16: (bytes, i) => bfloatToFloat(bytes[2 * i] | (bytes[2 * i + 1] << 8)),
  F16: (bytes, i) => halfToFloat(bytes[2 * i] | (bytes[2 * i + 1] << 8)),
  F8_E8M0: (bytes, i) => power(bytes[i]),
};

const FP8_CONFIG = { quantization_config: { weight_block_size: [128, 128] } };
const int4Config = (group_size: number | null) => ({
  quantization_config: {
    config_groups: { group_0: { weights: { num_bits: 4, type: 'int', symmetric: true, group_size } } },
  },
});

function floats(dtype: 'F32' | 'BF16' | 'F16'): Encoding {
  return {
    encoding: dtype.toLowerCase(),
    layout: dtype.toLowerCase(),
    columns: 70,
    entries: (lead, rows) => ({ 'w.weight': [dtype, [...lead, rows, 70]] }),
    value: (bytes, rows) => (m, r, c) => NUMBERS[dtype]!(bytes('w.weight'), (m * rows + r) * 70 + c),
  };
}

function fp8(scale: 'F32' | 'BF16' | 'F8_E8M0', blockRows: number, name = 'w.weight_scale_inv'): Encoding {
  const columns = 300;
  return {
    encoding: 'fp8',
    layout: 'fp8',
    columns,
    config: { text_config: { quantization_config: { weight_block_size: [blockRows, 128] } } },
    entries: (lead, rows) => ({
      'w.weight': ['F8_E4M3', [...lead, rows, columns]],
      [name]: [scale, [...lead, Math.ceil(rows / blockRows), 3]],
    }),
    value: (bytes, rows) => (m, r, c) => {
      const block = (m * Math.ceil(rows / blockRows) + Math.floor(r / blockRows)) * 3 + Math.floor(c / 128);
      return e4m3(bytes('w.weight')[(m * rows + r) * columns + c]) * NUMBERS[scale]!(bytes(name), block);
    },
  };
}

function mxfp4(codes: [string, Dtype, boolean], scales: [string, Dtype]): Encoding {
  const columns = 96;
  const [name, dtype, blocks] = codes;
  return {
    encoding: 'mxfp4',
    layout: 'mxfp4',
    columns,
    entries: (lead, rows) => ({
      [name]: [dtype, [...lead, rows, ...(blocks ? [3, 16] : [48])]],
      [scales[0]]: [scales[1], [...lead, rows, 3]],
    }),
    value: (bytes, rows) => (m, r, c) => {
      const row = m * rows + r;
      return E2M1[nibble(bytes(name), row * columns + c)] * power(bytes(scales[0])[row * 3 + (c >> 5)]);
    },
  };
}

function int4(scale: 'F32' | 'BF16' | 'F16', columns: number, group: number | null): Encoding {
  const perRow = group === null ? 1 : Math.ceil(columns / group);
  return {
    encoding: group === null ? 'int4-row' : `int4-g${group}`,
    layout: 'q4g64-f32',
    columns,
    config: int4Config(group),
    entries: (lead, rows) => ({
      'w.weight_packed': ['I32', [...lead, rows, columns / 8]],
      'w.weight_scale': [scale, [...lead, rows, perRow]],
      'w.weight_shape': ['I64', [2]],
    }),
    value: (bytes, rows) => (m, r, c) => {
      const row = m * rows + r;
      const code = nibble(bytes('w.weight_packed'), row * columns + c) - 8;
      return code * NUMBERS[scale]!(bytes('w.weight_scale'), row * perRow + Math.floor(c / (group ?? columns)));
    },
  };
}

function int8(scale: 'F32' | 'BF16', flat: boolean): Encoding {
  return {
    encoding: 'int8-row',
    layout: 'q8g64-f32',
    columns: 100,
    entries: (lead, rows) => ({
      'w.weight': ['I8', [...lead, rows, 100]],
      'w.weight_scale': [scale, [...lead, rows, ...(flat ? [] : [1])]],
    }),
    value: (bytes, rows) => (m, r, c) => {
      const row = m * rows + r;
      return ((bytes('w.weight')[row * 100 + c] << 24) >> 24) * NUMBERS[scale]!(bytes('w.weight_scale'), row);
    },
  };
}

/** Element i of a group of three-bit codes: 16 bytes of bit pairs, 8 bytes of third bits. */
function threeBits(group: Uint8Array, i: number): number {
  const low = (group[i >> 2] >> (2 * (i % 4))) & 3;
  return low + 4 * ((group[16 + (i >> 3)] >> (i % 8)) & 1) - 4;
}

const int3: Encoding = {
  encoding: 'int3-g64',
  layout: 'q4g64-f32',
  columns: 100,
  entries: (lead, rows) => ({ 'w.weight': ['U8', [...lead, rows, 48]], 'w.weight.qs': ['F32', [...lead, rows, 2]] }),
  value: (bytes, rows) => (m, r, c) => {
    const group = (m * rows + r) * 2 + (c >> 6);
    const code = threeBits(bytes('w.weight').subarray(group * 24, group * 24 + 24), c % 64);
    return code * NUMBERS.F32!(bytes('w.weight.qs'), group);
  },
};

const int2: Encoding = {
  encoding: 'int2-row',
  layout: 'q4g64-f32',
  columns: 102,
  entries: (lead, rows) => ({ 'w.weight': ['U8', [...lead, rows, 26]], 'w.weight.qs': ['F32', [...lead, rows]] }),
  value: (bytes, rows) => (m, r, c) => {
    const code = ((bytes('w.weight')[(m * rows + r) * 26 + (c >> 2)] >> (2 * (c % 4))) & 3) - 2;
    return code * NUMBERS.F32!(bytes('w.weight.qs'), m * rows + r);
  },
};

const gguf: Encoding = {
  encoding: 'q8_0',
  layout: 'q8_0',
  columns: 64,
  entries: (lead, rows) => ({ 'w.weight': ['Q8_0', [...lead, rows, 64]] }),
  value: (bytes, rows) => (m, r, c) => {
    const block = bytes('w.weight').subarray(((m * rows + r) * 2 + (c >> 5)) * 34);
    return halfToFloat(block[0] | (block[1] << 8)) * ((block[2 + (c % 32)] << 24) >> 24);
  },
};

const ENCODINGS: Record<string, Encoding> = {
  F32: floats('F32'),
  BF16: floats('BF16'),
  F16: floats('F16'),
  'fp8, F32 scales': fp8('F32', 128),
  'fp8, BF16 scales': fp8('BF16', 4),
  'fp8, E8M0 scales by a short name': fp8('F8_E8M0', 1, 'w.scale'),
  'MXFP4, packed': mxfp4(['w.weight_packed', 'U8', false], ['w.weight_scale', 'U8']),
  'MXFP4, packed, E8M0 scales': mxfp4(['w.weight_packed', 'U8', false], ['w.weight_scale', 'F8_E8M0']),
  'MXFP4 as I8': mxfp4(['w.weight', 'I8', false], ['w.scale', 'F8_E8M0']),
  'MXFP4 in blocks': mxfp4(['w.weight_blocks', 'U8', true], ['w.weight_scales', 'U8']),
  'int4, F32 scales': int4('F32', 256, 128),
  'int4, BF16 scales, ragged last group': int4('BF16', 200, 64),
  'int4, F16 scale per row': int4('F16', 200, null),
  'int8, BF16 scales': int8('BF16', false),
  'int8, flat scales': int8('F32', true),
  'three bits': int3,
  'two bits': int2,
  GGUF: gguf,
};

function check(
  one: Encoding,
  matrices: number | null,
  stored: number,
  ref: Partial<MatrixRef>,
  rows: number,
): Checkpoint {
  // one byte in front, so that nothing is aligned
  const entries: Entries = { pad: ['U8', [1]], ...one.entries(matrices === null ? [] : [matrices], stored) };
  const checkpoint = fake(entries, null, one.config);
  const contents = contentsOf(checkpoint, stored);
  const bytes = (name: string): Uint8Array => tensorBytes(contents, checkpoint.tensors.get(name)!);
  const record = resolveRef(checkpoint, { name: 'w.weight', ...ref }, rows, one.columns);
  expect(record.parts[0]).toMatchObject({ encoding: one.encoding, layout: one.layout, rows, columns: one.columns });
  const [part] = loadParts(record, ({ offset, bytes: size }) => contents.subarray(offset, offset + size));
  const value = one.value(bytes, stored);
  const { first, step } = ref.rows ?? { first: 0, step: 1 };
  checkPart(record, 0, part, (r, c) => value(ref.slice?.index ?? 0, first + r * step, c));
  return checkpoint;
}

describe.each(Object.entries(ENCODINGS))('%s', (_, one) => {
  test('a whole matrix', () => {
    check(one, null, 19, {}, 19);
    check(one, null, 1, {}, 1);
  });

  test('one of several in a tensor', () => {
    for (const index of [0, 2]) check(one, 3, 19, { slice: { index, of: 3 } }, 19);
  });

  test('a half of the rows, and every other row', () => {
    check(one, null, 40, { rows: { first: 21, step: 1, of: 40 } }, 19);
    for (const first of [0, 1]) {
      check(one, 2, 38, { slice: { index: 1, of: 2 }, rows: { first, step: 2, of: 38 } }, 19);
    }
  });

  test('bytes in the file are counted once, scales included', () => {
    const checkpoint = check(one, null, 38, {}, 38);
    const names = [...checkpoint.tensors.values()].filter(({ name }) => name !== 'pad' && name !== 'w.weight_shape');
    const total = names.reduce((sum, { bytes }) => sum + bytes, 0);
    const half = (first: number) => {
      const rows = { first, step: 2, of: 38 };
      return resolveRef(checkpoint, { name: 'w.weight', rows }, 19, one.columns).parts[0].fileBytes;
    };
    expect(resolveRef(checkpoint, { name: 'w.weight' }, 38, one.columns).parts[0].fileBytes).toBe(total);
    // a block of fp8 rows has one scale, of which each half counts its share
    expect(half(0) + half(1)).toBeGreaterThanOrEqual(total);
    expect(half(0) + half(1)).toBeLessThanOrEqual(total + 2);
  });
});

describe('transposed floats', () => {
  test.each(['F32', 'BF16', 'F16'] as const)('%s: columns of the file become rows', dtype => {
    const [rows, columns, of] = [37, 70, 74];
    const checkpoint = fake({ w: [dtype, [2, columns, of]] });
    const contents = contentsOf(checkpoint);
    for (const first of [0, 1]) {
      const ref = { name: 'w', slice: { index: 1, of: 2 }, rows: { first, step: 2, of }, transposed: true };
      const record = resolveRef(checkpoint, ref, rows, columns);
      const [part] = loadParts(record, ({ offset, bytes }) => contents.subarray(offset, offset + bytes));
      const bytes = tensorBytes(contents, checkpoint.tensors.get('w')!);
      checkPart(record, 0, part, (r, c) => NUMBERS[dtype]!(bytes, (columns + c) * of + first + 2 * r));
    }
  });

  test('nothing else can be turned', () => {
    const checkpoint = fake({ w: ['F8_E4M3', [4, 128]], w_scale_inv: ['F32', [1, 1]] }, null, FP8_CONFIG);
    const turned = () => resolveRef(checkpoint, { name: 'w', transposed: true }, 128, 4);
    expect(turned).toThrow(/F8_E4M3 with rows and columns exchanged/);
  });
});
