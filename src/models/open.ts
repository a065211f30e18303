/** Opening a model whichever way it is stored. */

import { openCheckpoint } from '../formats/checkpoint.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { findGguf, openGguf } from '../formats/gguf-files.ts';
import { checkpointOfGguf } from './gguf.ts';

/**
 * Opens a model directory (see openCheckpoint), a GGUF file or one of its numbered parts, or a directory that holds one GGUF model
 * and no safetensors files. Reads headers only.
 */
export function openModel(path: string): Checkpoint {
  const parts = findGguf(path);
  return parts ? checkpointOfGguf(openGguf(path, parts)) : openCheckpoint(path);
}
