/** What does not fit exactly is refused with the tensor, what was expected and what is there. */

import { expect, test } from 'vitest';
import { fake, refusal } from '../../../test/support/fake-checkpoint.ts';
import type { Dtype } from '../../formats/checkpoint-types.ts';
import type { MatrixRef } from '../refs.ts';
import { resolveRef } from '../resolve.ts';

type Entries = Record<string, [Dtype, number[]]>;

const BLOCKS_128 = { quantization_config: { weight_block_size: [128, 128] } };
const int4 = (weights: object, rest: Entries = {}) => ({
  entries: { 'w.weight_packed': ['I32', [4, 32]], 'w.weight_scale': ['F32', [4, 2]], ...rest } as Entries,
  config: { quantization_config: { config_groups: { g: { weights: { num_bits: 4, type: 'int', ...weights } } } } },
});
const fp8: Entries = { 'w.weight': ['F8_E4M3', [4, 256]], 'w.weight_scale_inv': ['F32', [1, 2]] };

interface Case {
  readonly entries: Entries;
  readonly config?: Record<string, unknown>;
  readonly ref?: Partial<MatrixRef>;
  readonly code: string;
  readonly message: RegExp;
}

const CASES: Record<string, Case> = {
  'fp8 without scales': {
    entries: { 'w.weight': fp8['w.weight'] },
    config: BLOCKS_128,
    code: 'TENSOR_MISSING',
    message:
      /"w\.weight_scale_inv" is missing, expected the scales of F8_E4M3 tensor "w\.weight": F32.* of shape \[1, 2\]/,
  },
  'fp8 scales of another shape': {
    entries: { ...fp8, 'w.weight_scale_inv': ['F32', [2, 2]] },
    config: BLOCKS_128,
    code: 'TENSOR_WRONG_SHAPE',
    message: /"w\.weight_scale_inv" has shape \[2, 2\], expected \[1, 2\]/,
  },
  'fp8 scales of another type': {
    entries: { ...fp8, 'w.weight_scale_inv': ['F16', [1, 2]] },
    config: BLOCKS_128,
    code: 'TENSOR_WRONG_DTYPE',
    message: /holds scales as F16, expected F32 or BF16 or F8_E8M0/,
  },
  'fp8 of another shape': {
    entries: { ...fp8, 'w.weight': ['F8_E4M3', [256, 4]] },
    config: BLOCKS_128,
    code: 'TENSOR_WRONG_SHAPE',
    message: /"w\.weight" has shape \[256, 4\], expected \[4, 256\]/,
  },
  'fp8 without a block size': {
    entries: fp8,
    code: 'ENCODING_UNSUPPORTED',
    message: /config\.json must state weight_block_size \[rows, 128\]; it states none/,
  },
  'fp8 with blocks of 64 columns': {
    entries: fp8,
    config: { quantization_config: { weight_block_size: [128, 64] } },
    code: 'ENCODING_UNSUPPORTED',
    message: /it states \[128,64\]/,
  },
  'fp8 with a block size that is no number': {
    entries: fp8,
    config: { quantization_config: { weight_block_size: [{}, 128] } },
    code: 'ENCODING_UNSUPPORTED',
    message: /it states \[\{\},128\]/,
  },
  'fp8 with one scale for the tensor': {
    entries: { 'w.weight': fp8['w.weight'], 'w.weight_scale': ['F32', []] },
    config: BLOCKS_128,
    code: 'ENCODING_UNSUPPORTED',
    message: /F8_E4M3 with one scale for the whole tensor \("w\.weight_scale"\)/,
  },
  'fp8 with a scale per row': {
    entries: { 'w.weight': fp8['w.weight'], 'w.weight_scale': ['F32', [4, 1]] },
    code: 'ENCODING_UNSUPPORTED',
    message: /F8_E4M3 with scales \[4, 1\]/,
  },
  'fp8 with two kinds of scales': {
    entries: { ...fp8, 'w.weight_scale': ['F32', []] },
    config: BLOCKS_128,
    code: 'ENCODING_AMBIGUOUS',
    message: /is F8_E4M3 but also has "w\.weight_scale", which fp8 does not need/,
  },
  'floats with scales of fp8': {
    entries: { ...fp8, 'w.weight': ['BF16', [4, 256]] },
    code: 'ENCODING_AMBIGUOUS',
    message: /is BF16 but also has "w\.weight_scale_inv"/,
  },
  'a matrix that is there twice': {
    entries: { ...int4({}).entries, 'w.weight': ['BF16', [4, 256]] },
    code: 'ENCODING_AMBIGUOUS',
    message: /is BF16 but also has "w\.weight_packed"/,
  },
  'MXFP4 without scales': {
    entries: { 'w.weight_packed': ['U8', [4, 128]] },
    code: 'TENSOR_MISSING',
    message: /"w\.weight_scale" is missing.*\[4, 8\]/,
  },
  'MXFP4 scales of another shape': {
    entries: { 'w.weight_packed': ['U8', [4, 128]], 'w.weight_scale': ['U8', [4, 16]] },
    code: 'TENSOR_WRONG_SHAPE',
    message: /"w\.weight_scale" has shape \[4, 16\], expected \[4, 8\]/,
  },
  'MXFP4 blocks for fewer experts': {
    entries: { 'w.weight_blocks': ['U8', [3, 4, 8, 16]], 'w.weight_scales': ['U8', [3, 4, 8]] },
    ref: { slice: { index: 0, of: 4 } },
    code: 'TENSOR_WRONG_SHAPE',
    message: /"w\.weight_blocks" has shape \[3, 4, 8, 16\], expected \[4, 4, 8, 16\]/,
  },
  'MXFP4 scales for fewer experts': {
    entries: { 'w.weight_blocks': ['U8', [4, 4, 8, 16]], 'w.weight_scales': ['U8', [3, 4, 8]] },
    ref: { slice: { index: 0, of: 4 } },
    code: 'TENSOR_WRONG_SHAPE',
    message: /"w\.weight_scales" has shape \[3, 4, 8\], expected \[4, 4, 8\]/,
  },
  'NVFP4 of compressed-tensors': {
    entries: {
      'w.weight_packed': ['U8', [4, 128]],
      'w.weight_scale': ['F8_E4M3', [4, 16]],
      'w.weight_global_scale': ['F32', [1]],
    },
    code: 'ENCODING_UNSUPPORTED',
    message: /NVFP4 of compressed-tensors/,
  },
  'NVFP4 without block scales': {
    entries: { 'w.weight': ['U8', [4, 128]], 'w.weight_scale_2': ['F32', []] },
    code: 'TENSOR_MISSING',
    message: /"w\.weight_scale" is missing.*F8_E4M3 of shape \[4, 16\]/,
  },
  'NVFP4 without the global scale': {
    entries: { 'w.weight': ['U8', [4, 128]], 'w.weight_scale': ['F8_E4M3', [4, 16]] },
    code: 'TENSOR_MISSING',
    message: /"w\.weight_scale_2" is missing, expected the F32 global scale/,
  },
  'NVFP4 with a global scale for each row': {
    entries: {
      'w.weight': ['U8', [4, 128]],
      'w.weight_scale': ['F8_E4M3', [4, 16]],
      'w.weight_scale_2': ['F32', [4]],
    },
    code: 'TENSOR_WRONG_SHAPE',
    message: /"w\.weight_scale_2" has shape \[4\], expected \[\]/,
  },
  'int4 with groups of 32': {
    ...int4({ group_size: 32 }, { 'w.weight_scale': ['F32', [4, 8]] }),
    code: 'ENCODING_UNSUPPORTED',
    message: /int4 with groups of 32 columns/,
  },
  'int4 with a number of scales that no group explains': {
    ...int4({ group_size: 64 }),
    code: 'SCALES_WRONG_COUNT',
    message: /has 2 scales for 256 columns; config\.json names groups of 64/,
  },
  'int4 with zero points': {
    ...int4({ group_size: 128 }, { 'w.weight_zero_point': ['I32', [1, 2]] }),
    code: 'ENCODING_AMBIGUOUS',
    message: /is I32 but also has "w\.weight_zero_point"/,
  },
  'int4 that says it is not symmetric': {
    ...int4({ group_size: 128, symmetric: false }),
    code: 'ENCODING_UNSUPPORTED',
    message: /int4 with zero points/,
  },
  'int4 with reordered columns': {
    ...int4({ group_size: 128 }, { 'w.weight_g_idx': ['I32', [256]] }),
    code: 'ENCODING_AMBIGUOUS',
    message: /"w\.weight_g_idx"/,
  },
  'int4 scales for fewer rows': {
    ...int4({ group_size: 128 }, { 'w.weight_scale': ['BF16', [3, 2]] }),
    code: 'TENSOR_WRONG_SHAPE',
    message: /"w\.weight_scale" has shape \[3, 2\], expected \[4, 2\]/,
  },
  'int8 in words': {
    entries: { 'w.weight_packed': ['I32', [4, 64]], 'w.weight_scale': ['F32', [4, 1]] },
    code: 'ENCODING_UNSUPPORTED',
    message: /int8 packed into words/,
  },
  'int8 with one scale for the tensor': {
    entries: { 'w.weight': ['I8', [4, 256]], 'w.weight_scale': ['F32', [1]] },
    code: 'ENCODING_UNSUPPORTED',
    message: /int8 with one scale for the whole tensor/,
  },
  'int8 in groups': {
    entries: { 'w.weight': ['I8', [4, 256]], 'w.weight_scale': ['F32', [4, 2]] },
    code: 'TENSOR_WRONG_SHAPE',
    message: /"w\.weight_scale" has shape \[4, 2\], expected \[4, 1\]/,
  },
  GPTQ: {
    entries: { 'w.qweight': ['I32', [32, 4]], 'w.qzeros': ['I32', [2, 1]], 'w.scales': ['F16', [2, 4]] },
    code: 'ENCODING_UNSUPPORTED',
    message: /"w\.qweight" is stored as I32 words of GPTQ or AWQ/,
  },
  'GGUF blocks for fewer experts': {
    entries: { 'w.weight': ['Q4_K', [3, 4, 256]] },
    ref: { slice: { index: 1, of: 4 } },
    code: 'TENSOR_WRONG_SHAPE',
    message: /has shape \[3, 4, 256\], expected \[4, 4, 256\]/,
  },
  'a type of GGUF that has no kernel': {
    entries: { 'w.weight': ['U16', [4, 256]] },
    code: 'ENCODING_UNSUPPORTED',
    message: /is stored as U16.*it reads F32.*Q4_K.*of GGUF/,
  },
};

test.each(Object.entries(CASES))('%s', (_, { entries, config, ref, code, message }) => {
  const error = refusal(() => resolveRef(fake(entries, null, config), { name: 'w.weight', ...ref }, 4, 256));
  expect(error.message).toMatch(message);
  expect(error.code).toBe(code);
  expect(error.hint).toBeTruthy();
});

test.each<[string, Entries]>([
  ['MXFP4', { 'w.weight_packed': ['U8', [4, 36]], 'w.weight_scale': ['U8', [4, 3]] }],
  ['NVFP4', { 'w.weight': ['U8', [4, 36]], 'w.weight_scale': ['F8_E4M3', [4, 5]] }],
  ['Q8_0', { 'w.weight': ['Q8_0', [4, 72]] }],
])('%s rows must be whole blocks', (encoding, entries) => {
  const error = refusal(() => resolveRef(fake(entries), { name: 'w.weight' }, 4, 72));
  expect(error.code).toBe('TENSOR_WRONG_SHAPE');
  expect(error.message).toMatch(new RegExp(`is ${encoding}, whose rows are blocks of (16|32), but has 72 columns`));
});

test('scales of activations change nothing: weights are what they are', () => {
  const entries: Entries = { ...fp8, 'w.input_scale': ['F32', []] };
  expect(resolveRef(fake(entries, null, BLOCKS_128), { name: 'w.weight' }, 4, 256).parts[0].encoding).toBe('fp8');
});
