/** Which model this is, and what an answer's bytes depend on besides prompt, seed and sampling. */

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

/**
 * Hex digest of what the model is, wherever its files lie and whenever they were written: config, tensors, sizes, and the hashes
 * that a container states. For what only decides speed: without hashes two trainings of one shape look the same.
 */
export function modelIdentity({ checkpoint }: Pick<ModelFiles, 'checkpoint'>): string {
  const digest = createHash('sha256');
  digest.update(`${JSON.stringify(checkpoint.config)}\n`);
  for (const { path, bytes } of checkpoint.files) digest.update(`${JSON.stringify([basename(path), bytes])}\n`);
  for (const { name, dtype, shape } of checkpoint.tensors.values()) {
    digest.update(`${JSON.stringify([name, dtype, shape, checkpoint.container?.sha256.get(name) ?? null])}\n`);
  }
  return digest.digest('hex');
}
