/** `coli.index.json`: what our own container says about its tensors beyond what safetensors can say. */

import { join } from 'node:path';
import * as z from 'zod';
import { ModelFileError } from '../common/errors.ts';
import type { ContainerIndex, TensorInfo } from './checkpoint-types.ts';
import { quote } from './files.ts';
import { formatJsonPath, MAX_INDEX_BYTES, readJsonObject } from './json.ts';

export const CONTAINER_INDEX_FILE = 'coli.index.json';
/** The version this code writes, and the newest that it reads. */
export const CONTAINER_VERSION = 1;

/** A matrix of 2^31 rows would not fit any arena; the bound keeps products of two dimensions exact enough to compare. */
const MAX_DIMENSION = 2 ** 31 - 1;
/** gate, up, down; room for a few more roles, none for a hostile list. */
const MAX_PARTS = 16;

const Encoding = z.string().min(1).max(64);
const Dimension = z.int().positive().max(MAX_DIMENSION);
const Matrix = z.strictObject({ encoding: Encoding, rows: Dimension, columns: Dimension });
const Part = z.strictObject({
  role: z.string().min(1).max(64),
  encoding: Encoding,
  rows: Dimension,
  columns: Dimension,
  offset: z.int().nonnegative(),
});
const Index = z.strictObject({
  version: z.literal(CONTAINER_VERSION),
  writer: z.string().max(256),
  source: z.record(z.string(), z.unknown()).nullable(),
  matrices: z.record(z.string(), Matrix),
  experts: z.record(z.string(), z.strictObject({ parts: z.array(Part).min(1).max(MAX_PARTS) })),
  sha256: z.record(z.string(), z.string().regex(/^[0-9a-f]{64}$/, 'must be 64 lower-case hexadecimal digits')),
});

/** Reads `coli.index.json` of a directory; the file must exist. */
export function readContainerIndex(directory: string): ContainerIndex {
  const path = join(directory, CONTAINER_INDEX_FILE);
  return parseContainerIndex(readJsonObject(path, MAX_INDEX_BYTES), path);
}

export function parseContainerIndex(json: Record<string, unknown>, path: string): ContainerIndex {
  const { version } = json;
  if (typeof version === 'number' && Number.isInteger(version) && version > CONTAINER_VERSION) {
    throw new ModelFileError(
      'CONTAINER_TOO_NEW',
      `${path} has version ${version}; this program reads up to version ${CONTAINER_VERSION}`,
      { hint: 'update the program, or convert the model again', details: { file: path, version } },
    );
  }
  const result = Index.safeParse(json);
  if (!result.success) {
    const [issue] = result.error.issues;
    throw bad(path, `${formatJsonPath(issue.path as (string | number)[])}: ${issue.message}`);
  }
  const { matrices, experts, sha256, ...rest } = result.data;
  const index = {
    ...rest,
    matrices: new Map(Object.entries(matrices)),
    experts: new Map(Object.entries(experts)),
    sha256: new Map(Object.entries(sha256)),
  };
  for (const table of ['matrices', 'experts', 'sha256'] as const) {
    // zod leaves out the one key that plain objects treat specially; nothing may vanish unsaid.
    if (Object.hasOwn(json[table] as object, '__proto__')) throw bad(path, `${table} names "__proto__"`);
  }
  for (const [name, { parts }] of index.experts) {
    const ascending = parts.every((part, i) => i === 0 || part.offset > parts[i - 1].offset);
    if (!ascending) throw bad(path, `parts of ${quote(name)} are not in ascending order of offset`, name);
  }
  return index;
}

/** Every tensor that the index describes must be in the files; records are byte tensors that contain their parts. */
export function checkContainerTensors(
  directory: string,
  index: ContainerIndex,
  tensors: ReadonlyMap<string, TensorInfo>,
): void {
  const path = join(directory, CONTAINER_INDEX_FILE);
  for (const table of ['matrices', 'experts', 'sha256'] as const) {
    for (const name of index[table].keys()) {
      if (!tensors.has(name)) throw bad(path, `${table} names ${quote(name)}, which no shard holds`, name);
    }
  }
  for (const [name, { parts }] of index.experts) {
    const { dtype, bytes } = tensors.get(name)!;
    if (dtype !== 'U8') throw bad(path, `record ${quote(name)} must be U8, its shard says ${dtype}`, name);
    const last = parts.at(-1)!;
    if (last.offset >= bytes) {
      throw bad(path, `part ${quote(last.role)} of ${quote(name)} begins at ${last.offset} of ${bytes} bytes`, name);
    }
  }
}

/** The JSON form, with keys in the order of the maps, so that equal indexes give equal bytes. */
export function containerIndexToJson(index: ContainerIndex): Record<string, unknown> {
  return {
    version: index.version,
    writer: index.writer,
    source: index.source ?? null,
    matrices: Object.fromEntries(index.matrices),
    experts: Object.fromEntries(index.experts),
    sha256: Object.fromEntries(index.sha256),
  };
}

function bad(path: string, what: string, tensor?: string): ModelFileError {
  return new ModelFileError('BAD_CONTAINER_INDEX', `${path}: ${what}`, {
    hint: 'the container is damaged or half-written: convert or download the model again',
    details: { file: path, ...(tensor === undefined ? {} : { tensor }) },
  });
}
