import { expect, test } from 'vitest';
import { checkPart, contentsOf, loadParts, tensorBytes } from '../../../test/support/checkpoint-bytes.ts';
import { fake, refusal } from '../../../test/support/fake-checkpoint.ts';
import type { Dtype } from '../../formats/checkpoint-types.ts';
import { bfloatToFloat, halfToFloat } from '../../kernels/reference/math.ts';
import { type DenseOptions, resolveMatrix, resolveVector } from '../resolve.ts';

const VALUE: Partial<Record<Dtype, (bytes: Uint8Array, i: number) => number>> = {
  F32: (bytes, i) => new DataView(bytes.slice().buffer).getFloat32(i * 4, true),
  BF16: (bytes, i) => bfloatToFloat(bytes[2 * i] | (bytes[2 * i + 1] << 8)),
  F16: (bytes, i) => halfToFloat(bytes[2 * i] | (bytes[2 * i + 1] << 8)),
};

test.each(['F32', 'BF16', 'F16'] as const)('%s vectors become float32, plain and with 1 added', dtype => {
  const checkpoint = fake({ pad: ['U8', [3]], v: [dtype, [37]] });
  const contents = contentsOf(checkpoint);
  const bytes = tensorBytes(contents, checkpoint.tensors.get('v')!);
  for (const plusOne of [false, true]) {
    const record = resolveVector(checkpoint, 'v', 37, { plusOne });
    expect(record.parts[0]).toMatchObject({ encoding: dtype.toLowerCase(), layout: 'f32', rows: 1, columns: 37 });
    const [part] = loadParts(record, ({ offset, bytes: size }) => contents.subarray(offset, offset + size));
    checkPart(record, 0, part, (_, c) => VALUE[dtype]!(bytes, c) + (plusOne ? 1 : 0));
  }
});

test('shapes with dimensions of 1 in the file, as the family says or without them', () => {
  const options: DenseOptions = { stored: [12, 1, 4] };
  const vector = (shape: number[]) => () => resolveVector(fake({ v: ['BF16', shape] }), 'v', 48, options);
  expect(vector([12, 1, 4])().parts[0].columns).toBe(48);
  expect(vector([48])().parts[0].columns).toBe(48);
  expect(refusal(vector([12, 4])).message).toMatch(/\[12, 4\], expected \[12, 1, 4\]/);
  const matrix = (shape: number[]) => () => resolveMatrix(fake({ m: ['F32', shape] }), 'm', 12, 4, options);
  expect(matrix([12, 1, 4])().parts[0]).toMatchObject({ rows: 12, columns: 4, source: { extent: 0, offset: 0 } });
  expect(matrix([12, 4])().parts[0].rows).toBe(12);
  expect(refusal(matrix([4, 1, 12])).message).toMatch(/\[4, 1, 12\], expected \[12, 1, 4\]/);
});

test('vectors in other encodings are refused', () => {
  const error = refusal(() => resolveVector(fake({ v: ['F8_E4M3', [4]] }), 'v', 4));
  expect(error.code).toBe('ENCODING_UNSUPPORTED');
  expect(error.message).toMatch(/"v" is stored as F8_E4M3/);
});
