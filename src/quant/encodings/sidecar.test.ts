import { describe, expect, test } from 'vitest';
import { fake, refusal } from '../../../test/support/fake-checkpoint.ts';
import { resolveMatrix } from '../resolve.ts';

describe('encoding by byte counts', () => {
  const form = (columns: number, weights: number[], scales: number[], rows = 32) =>
    resolveMatrix(fake({ w: ['U8', weights], 'w.qs': ['F32', scales] }), 'w', rows, columns).parts[0].encoding;

  test('what the sizes say', () => {
    expect(form(128, [32, 128], [32])).toBe('int8-row');
    expect(form(128, [32, 64], [32])).toBe('int4-row');
    expect(form(128, [32, 64], [32, 2])).toBe('int4-g64');
    expect(form(65, [32, 33], [32, 2])).toBe('int4-g64');
    expect(form(128, [32, 32], [32])).toBe('int2-row');
    expect(form(128, [32, 48], [32, 2])).toBe('int3-g64');
    // Three groups could be of 64 or of 80 columns: 64 is what is shipped.
    expect(form(192, [32, 96], [32, 3])).toBe('int4-g64');
    // [1, 128] with one scale is also the size of block FP8: one byte per weight means int8-row.
    expect(form(128, [1, 128], [1], 1)).toBe('int8-row');
  });

  test.each<[string, number, number[], number[], string, RegExp]>([
    ['one column', 1, [32, 1], [32], 'ENCODING_AMBIGUOUS', /int8-row or int4-row/],
    ['24-byte rows of 48 columns', 48, [32, 24], [32], 'ENCODING_AMBIGUOUS', /int4-row or int3-g64/],
    ['24 columns', 24, [32, 24], [32], 'ENCODING_AMBIGUOUS', /int8-row or int3-g64/],
    ['groups of 128', 256, [32, 128], [32, 2], 'ENCODING_UNSUPPORTED', /int4-g128.*it reads.*int4-g64/],
    ['groups of 32', 128, [32, 64], [32, 4], 'ENCODING_UNSUPPORTED', /int4-g32/],
    ['lattice', 256, [32, 98], [1], 'ENCODING_UNSUPPORTED', /e8-iq3/],
    ['block FP8', 256, [32, 256], [2], 'ENCODING_UNSUPPORTED', /fp8-e4m3-b128/],
    ['nothing known', 128, [32, 77], [32], 'ENCODING_UNKNOWN', /2464 bytes with 32 scales.*int8-row 4096 with 32/],
    ['transposed', 64, [64, 32], [32], 'TENSOR_WRONG_SHAPE', /has 64 rows \(shape \[64, 32\]\), expected 32/],
  ])('%s is refused', (_, columns, weights, scales, code, message) => {
    const error = refusal(() => form(columns, weights, scales));
    expect(error.code).toBe(code);
    expect(error.message).toMatch(message);
    expect(error.message).toContain('/m/a.safetensors: tensor "w"');
  });

  test('I8 is int8-row or nothing', () => {
    const checkpoint = fake({ w: ['I8', [4, 128]], 'w.qs': ['F32', [4]], n: ['I8', [4, 64]], 'n.qs': ['F32', [4]] });
    expect(resolveMatrix(checkpoint, 'w', 4, 128).parts[0].encoding).toBe('int8-row');
    expect(refusal(() => resolveMatrix(checkpoint, 'n', 4, 128)).code).toBe('ENCODING_UNKNOWN');
  });

  test('what cannot be read is not sent to the converter, which reads no more', () => {
    expect(refusal(() => form(128, [32, 64], [32, 4])).hint).toMatch(/BF16 files.*cannot read this encoding either/);
  });
});

test.each([
  [null, 'there is no coli.index.json'],
  [{}, 'coli.index.json does not list it'],
])('U8 without scales is a tile matrix of a container: index %j', (container, why) => {
  const error = refusal(() => resolveMatrix(fake({ w: ['U8', [4352]] }, container), 'w', 64, 64));
  expect(error.code).toBe('MATRIX_NOT_DESCRIBED');
  expect(error.message).toMatch(new RegExp(`tensor "w" is U8 without scales "w.qs".*${why}`));
  expect(error.hint).toContain('coli.index.json is missing');
});
