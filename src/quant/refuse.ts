/** The refusals of resolving a tensor: every message names the tensor, its file, what was expected and what is there. */

import { ModelFileError } from '../common/errors.ts';
import type { Checkpoint, TensorInfo } from '../formats/checkpoint-types.ts';
import { quote } from '../formats/files.ts';

/** What this version reads, for messages. */
export const SUPPORTED_ENCODINGS =
  'F32, BF16, F16; F8_E4M3 with scales of 128 columns; MXFP4; NVFP4 of modelopt; int4 and int8 of compressed-tensors; ' +
  'Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4 of GGUF; ' +
  'int8-row, int4-row, int4-g64, int3-g64, int2-row (U8 with .qs scales); merged int8 experts (I8 with .qs); ' +
  'q4g64, q8g64 (coli containers)';

export function missing(checkpoint: Checkpoint, name: string, expected: string): ModelFileError {
  return new ModelFileError(
    'TENSOR_MISSING',
    `${checkpoint.directory}: tensor ${quote(name)} is missing, expected ${expected}`,
    {
      hint: 'the checkpoint is incomplete or not of this family: download it again, or convert it from a complete source',
      details: { tensor: name, expected },
    },
  );
}

export function refuse(
  checkpoint: Checkpoint,
  tensor: Pick<TensorInfo, 'name' | 'file'>,
  code: string,
  what: string,
  facts: { expected?: unknown; got?: unknown; hint?: string } = {},
): ModelFileError {
  const file = checkpoint.files[tensor.file]?.path;
  return new ModelFileError(code, `${file}: tensor ${quote(tensor.name)} ${what}`, {
    hint: facts.hint ?? 'the file does not fit its config.json: download the model again from a source you trust',
    details: { file, tensor: tensor.name, expected: facts.expected, got: facts.got },
  });
}

export function wrongShape(checkpoint: Checkpoint, tensor: TensorInfo, expected: readonly number[]): ModelFileError {
  const what = `has shape [${tensor.shape.join(', ')}], expected [${expected.join(', ')}]`;
  return refuse(checkpoint, tensor, 'TENSOR_WRONG_SHAPE', what, { expected, got: tensor.shape });
}

export function unsupported(checkpoint: Checkpoint, tensor: TensorInfo, stored: string): ModelFileError {
  const what = `is stored as ${stored}, which this version does not read; it reads ${SUPPORTED_ENCODINGS}`;
  return refuse(checkpoint, tensor, 'ENCODING_UNSUPPORTED', what, {
    got: stored,
    hint: 'get this model in one of these, such as its BF16 files; `coli convert` cannot read this encoding either',
  });
}
