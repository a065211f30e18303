/**
 * Headers of files that are not here: each becomes a file of the true size in a directory of its own, of which only the beginning has
 * content. Such a directory opens like a model, and takes next to no space where files may have holes.
 */

import fs from 'node:fs';
import { join } from 'node:path';
import { ColiError } from '../common/errors.ts';
import { readGgufHeader } from '../formats/gguf.ts';
import { MAX_GGUF_HEADER_BYTES } from '../formats/gguf-cursor.ts';
import { readSafetensorsHeader } from '../formats/safetensors.ts';
import type { HubFile } from '../hub/hub-file.ts';
import type { HubRepo } from '../hub/repo.ts';

/** Most headers are shorter: one request. */
const FIRST_BYTES = 2 ** 18;
/** A vocabulary takes megabytes; each request of a GGUF header brings as much again as is there. */
const MOST_BYTES = MAX_GGUF_HEADER_BYTES;
/** What the first bytes of a GGUF file tell; everything else may be for want of the others. */
const FROM_THE_START: readonly string[] = [
  'SHARD_IS_POINTER',
  'SHARD_IS_WEB_PAGE',
  'GGUF_BAD_MAGIC',
  'GGUF_BIG_ENDIAN',
  'GGUF_VERSION',
];
/** Round trips, not bytes, are what headers cost. */
const AT_ONCE = 8;

/** Writes the headers of `files`, under the last parts of their names, and tells how many bytes of each are real. */
export async function fetchHeaders(
  repo: HubRepo,
  files: readonly HubFile[],
  directory: string,
  { signal, onProgress }: { signal?: AbortSignal; onProgress?: (done: number, total: number) => void },
): Promise<ReadonlyMap<HubFile, Uint8Array>> {
  const headers = new Map<HubFile, Uint8Array>();
  const queue = [...files];
  const work = async (): Promise<void> => {
    for (let file = queue.shift(); file; file = queue.shift()) {
      headers.set(file, await fetchHeader(repo, file, join(directory, baseName(file)), signal));
      onProgress?.(headers.size, files.length);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return headers;
}

export function baseName({ path }: HubFile): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** Fetches until the header is whole. */
async function fetchHeader(repo: HubRepo, file: HubFile, path: string, signal?: AbortSignal): Promise<Uint8Array> {
  fs.writeFileSync(path, '');
  fs.truncateSync(path, file.bytes);
  let known = new Uint8Array(0);
  for (let end = Math.min(file.bytes, FIRST_BYTES); ; ) {
    if (end > known.length) known = Buffer.concat([known, await repo.read(file, known.length, end, signal)]);
    writeAtStart(path, known);
    const length = headerEnd(path, known.length === file.bytes || known.length >= MOST_BYTES, known);
    if (length !== null && length <= known.length) return known.subarray(0, length);
    end = Math.min(file.bytes, length ?? 2 * known.length);
  }
}

function writeAtStart(path: string, bytes: Uint8Array): void {
  const fd = fs.openSync(path, 'r+');
  try {
    fs.writeSync(fd, bytes, 0, bytes.length, 0);
  } finally {
    fs.closeSync(fd);
  }
}

/** Where the header ends; null when that cannot be told yet. `isAll`: nothing more will come, so what is wrong is told. */
function headerEnd(path: string, isAll: boolean, known: Uint8Array): number | null {
  if (!/\.gguf$/i.test(path)) {
    const length = new DataView(known.buffer, known.byteOffset, known.length);
    const declared = known.length < 8 ? 0 : 8 + Number(length.getBigUint64(0, true));
    // a length that is no length is told by name
    if (declared > known.length && declared <= fs.statSync(path).size && declared < MOST_BYTES) return declared;
    return readSafetensorsHeader(path).dataOffset;
  }
  try {
    return readGgufHeader(path).dataOffset;
  } catch (error) {
    if (!isAll && error instanceof ColiError && !FROM_THE_START.includes(error.code)) return null;
    throw error;
  }
}
