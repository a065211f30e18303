/** What an answer's bytes depend on besides prompt, seed and sampling: the model and the settings that change numbers. */

import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import type { EngineOptions } from './api.ts';
import type { ModelFiles } from './model-files.ts';

/** Counted up by every change of what kernels, layers or families compute. */
const NUMERICS_VERSION = 2;

/**
 * Hex digest; engines with equal ones give equal bytes. Files are known by the hashes of a container, else by name, size and
 * time of change: reading hundreds of gigabytes would take longer than what this is for.
 */
export function fingerprint({ checkpoint, parts }: ModelFiles, options: EngineOptions): string {
  const digest = createHash('sha256');
  const add = (value: unknown) => digest.update(`${JSON.stringify(value)}\n`);
  add([NUMERICS_VERSION, options.kv ?? 'f32', options.activations ?? 'int8', parts, checkpoint.config]);
  const hashes = checkpoint.container?.sha256;
  for (const { path, bytes, mtimeMs } of checkpoint.files) add([basename(path), bytes, hashes ? 0 : mtimeMs]);
  for (const { name, file, dtype, shape, offset } of checkpoint.tensors.values()) {
    add([name, file, dtype, shape, offset, hashes?.get(name) ?? null]);
  }
  return digest.digest('hex');
}
