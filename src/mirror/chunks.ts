/** Whole files past the page cache, piece by piece: the next piece is on its way while one is looked at. */

import { createHash } from 'node:crypto';
import { read as readCallback } from 'node:fs';
import { promisify } from 'node:util';
import { StorageError } from '../common/errors.ts';
import { alignDown, alignUp, MIB } from '../common/units.ts';
import { closeFiles, openFiles } from '../storage/open-files.ts';
import { PAGE } from '../storage/record-table.ts';

export const CHUNK_BYTES = 8 * MIB;
const WASM_PAGE = 65536;

const read = promisify(readCallback);

/** Yields the first `bytes` bytes of a file in order; a piece is valid until the next is asked for. Throws when it ends early. */
export async function* readChunks(path: string, bytes: number, signal?: AbortSignal): AsyncGenerator<Uint8Array> {
  // a WebAssembly memory lies on a page, as direct reads want it
  const memory = new WebAssembly.Memory({ initial: (2 * CHUNK_BYTES) / WASM_PAGE });
  const buffer = new Uint8Array(memory.buffer);
  const { descriptors } = openFiles([path], 'auto');
  const fetch = (at: number, half: number) =>
    read(descriptors[0], buffer, half * CHUNK_BYTES, Math.min(CHUNK_BYTES, alignUp(bytes - at, PAGE)), at);
  let coming: ReturnType<typeof fetch> | null = bytes > 0 ? fetch(0, 0) : null;
  try {
    let done = 0;
    let start = 0;
    for (let half = 0; coming !== null; half = 1 - half) {
      const { bytesRead } = await coming;
      coming = null;
      const end = Math.min(start + bytesRead, bytes);
      if (end <= done) throw endedEarly(path, done, bytes);
      const piece = buffer.subarray(half * CHUNK_BYTES + done - start, half * CHUNK_BYTES + end - start);
      // a direct read starts on a page: after a count that ends inside one, that page comes again
      start = alignDown(end, PAGE);
      done = end;
      requireRunning(signal);
      if (done < bytes) coming = fetch(start, 1 - half);
      yield piece;
    }
  } finally {
    await coming?.catch(() => {});
    closeFiles(descriptors);
  }
}

/** Lower-case hex. */
export async function sha256File(
  path: string,
  bytes: number,
  signal: AbortSignal | undefined,
  onBytes: (bytes: number) => void,
): Promise<string> {
  const hash = createHash('sha256');
  for await (const piece of readChunks(path, bytes, signal)) {
    hash.update(piece);
    onBytes(piece.length);
  }
  return hash.digest('hex');
}

function requireRunning(signal: AbortSignal | undefined): void {
  if (!signal?.aborted) return;
  throw new StorageError('MIRROR_STOPPED', 'stopped; what was finished before is kept', {
    hint: 'give the same command again to continue',
  });
}

function endedEarly(path: string, got: number, expected: number): StorageError {
  return new StorageError('SHORT_READ', `${path} ended after ${got} of ${expected} bytes`, {
    details: { file: path, expected, got },
    hint: 'something is still writing this file, or has cut it',
  });
}
