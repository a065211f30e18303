/** The few numbers that decide how a checkpoint is read, taken from the file before its tensors are. */

import type { Checkpoint } from './checkpoint-types.ts';
import { readExact, withFile } from './files.ts';

/** The float32 at a position of one of the checkpoint's files. */
export function readFloat32(
  checkpoint: Checkpoint,
  { file, offset }: { readonly file: number; readonly offset: number },
): number {
  const { path } = checkpoint.files[file];
  const bytes = new Uint8Array(4);
  withFile(path, fd => readExact(fd, bytes, offset, path));
  return new DataView(bytes.buffer).getFloat32(0, true);
}
