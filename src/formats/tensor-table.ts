/** The tensor tables of several files as one. */

import { basename } from 'node:path';
import { ModelFileError } from '../common/errors.ts';
import type { FileIdentity, TensorInfo } from './checkpoint-types.ts';
import { quote } from './files.ts';

/** Throws TENSOR_TWICE when two files hold the same tensor, because one of them would be ignored. */
export function joinTensors(
  headers: readonly { readonly identity: FileIdentity; readonly tensors: readonly TensorInfo[] }[],
): Map<string, TensorInfo> {
  const tensors = new Map<string, TensorInfo>();
  for (const { identity, tensors: own } of headers) {
    for (const tensor of own) {
      const first = tensors.get(tensor.name);
      if (first) throw twice(tensor.name, headers[first.file].identity.path, identity.path);
      tensors.set(tensor.name, tensor);
    }
  }
  return tensors;
}

function twice(tensor: string, first: string, second: string): ModelFileError {
  return new ModelFileError('TENSOR_TWICE', `tensor ${quote(tensor)} is in ${basename(first)} and in ${second}`, {
    hint: 'files of two models or versions lie in one directory: keep one of them, or download it again',
    details: { file: second, tensor, other: first },
  });
}
