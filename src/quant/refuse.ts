/** The refusals of resolving a tensor: every message names the tensor, its file, what was expected and what is there. */

import { ModelFileError } from '../common/errors.ts';
import type { Checkpoint, TensorInfo } from '../formats/checkpoint-types.ts';
import { quote } from '../formats/files.ts';

/** What this version reads, for messages. */
export const SUPPORTED_ENCODINGS =
  'F32, BF16, F16; int8-row, int4-row, int4-g64 (U8 with .qs scales); merged int8 experts (I8 with .qs); q4g64, q8g64 (coli containers)';

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
    hint: 'get the BF16 files of this model; `coli convert` makes them smaller, but cannot read this encoding either',
  });
}
