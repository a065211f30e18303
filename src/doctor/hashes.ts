/** Every byte against the hashes that a container states, or that the cache of the hub names its blobs by. */

import { createHash, type Hash } from 'node:crypto';
import fs from 'node:fs';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { alignDown, alignUp, formatBytes, MIB } from '../common/units.ts';
import { listNames, namesIn } from '../formats/files.ts';
import { closeFiles, openFiles } from '../storage/open-files.ts';
import { PAGE } from '../storage/record-table.ts';
import { fail, pass, skip } from './findings.ts';
import { directoryOf } from './model.ts';
import type { Context, Finding } from './types.ts';

const CHUNK_BYTES = 8 * MIB;
const MAX_LISTED = 100;
/** A blob is named by the SHA-256 of a large file, or by the SHA-1 that git gives a small one. */
const BLOB = /^(?:[0-9a-f]{64}|[0-9a-f]{40})$/;

/** A stretch of a file and what its digest must be. */
interface Expected {
  readonly name: string;
  readonly path: string;
  readonly offset: number;
  readonly bytes: number;
  readonly digest: string;
}

/** Reads while it hashes, in two chunks: memory does not depend on the model. */
export async function hashes({ found, options }: Context): Promise<Finding> {
  const blobs = blobsOf(directoryOf(found.path!));
  const expected = blobs.length > 0 ? blobs : containerTensors(found.files!);
  const from = blobs.length > 0 ? 'names of the blobs in the cache' : 'hashes of the container';
  if (expected.length === 0) {
    return skip('no hashes are stated (coli convert writes some)');
  }
  const { signal, onProgress } = options;
  const totalBytes = expected.reduce((sum, { bytes }) => sum + bytes, 0);
  const wrong: Expected[] = [];
  let doneBytes = 0;
  let checked = 0;
  const buffer = new Uint8Array(new WebAssembly.Memory({ initial: (2 * CHUNK_BYTES) / 65536 }).buffer);
  for (const each of expected) {
    const digest = await digestOf(each, buffer, signal, bytes => {
      doneBytes += bytes;
      onProgress?.({ id: 'model.hashes', doneBytes, totalBytes });
    });
    if (signal?.aborted) break;
    checked++;
    if (digest !== each.digest) wrong.push(each);
  }
  const details = { from, hashes: expected.length, checked, bytes: doneBytes, total_bytes: totalBytes };
  const sofar = checked < expected.length ? `interrupted after ${formatBytes(doneBytes)}: ` : '';
  if (wrong.length > 0) {
    const names = wrong.map(({ name }) => name);
    return fail(
      `${sofar}${wrong.length} of ${checked} differ from the ${from}: ${listNames(names)}`,
      blobs.length > 0
        ? `delete ${wrong[0].path}, then coli pull fetches it again`
        : 'the files are damaged: copy, convert or fetch them again',
      { ...details, wrong: wrong.slice(0, MAX_LISTED).map(({ name, path }) => ({ name, file: path })) },
    );
  }
  if (sofar !== '') return skip(`${sofar}nothing wrong until then`, details);
  return pass(`${formatBytes(doneBytes)} agree with the ${from}`, details);
}

/** Links of a snapshot to blobs, and what those promise. */
function blobsOf(directory: string): Expected[] {
  return namesIn(directory).flatMap(name => {
    const link = join(directory, name);
    if (!fs.lstatSync(link).isSymbolicLink()) return [];
    const stat = fs.statSync(link, { throwIfNoEntry: false });
    if (!stat?.isFile()) return [];
    const path = fs.realpathSync(link);
    const digest = basename(path);
    return BLOB.test(digest) ? [{ name, path, offset: 0, bytes: stat.size, digest }] : [];
  });
}

function containerTensors({ checkpoint }: NonNullable<Context['found']['files']>): Expected[] {
  const { container, tensors, files } = checkpoint;
  return [...(container?.sha256 ?? [])].flatMap(([name, digest]) => {
    const tensor = tensors.get(name);
    if (tensor === undefined) return [];
    return [{ name, path: files[tensor.file].path, offset: tensor.offset, bytes: tensor.bytes, digest }];
  });
}

const read = promisify(fs.read);

/** Hex digest of what is there, shorter than promised or not; of no use once `signal` is aborted. */
async function digestOf(
  { path, offset, bytes, digest }: Expected,
  buffer: Uint8Array,
  signal: AbortSignal | undefined,
  onBytes: (bytes: number) => void,
): Promise<string> {
  const hash = startHash(digest, bytes);
  const { descriptors } = openFiles([path], 'auto');
  const end = offset + bytes;
  const start = alignDown(offset, PAGE);
  const fetch = (at: number, half: number) =>
    read(descriptors[0], buffer, half * CHUNK_BYTES, Math.min(CHUNK_BYTES, alignUp(end - at, PAGE)), at);
  let coming: ReturnType<typeof fetch> | null = null;
  try {
    coming = start < end ? fetch(start, 0) : null;
    for (let at = start, half = 0; coming !== null; half = 1 - half) {
      const { bytesRead } = await coming;
      const next = at + bytesRead;
      coming = bytesRead > 0 && next < end && !signal?.aborted ? fetch(alignDown(next, PAGE), 1 - half) : null;
      const from = half * CHUNK_BYTES + Math.max(0, offset - at);
      const to = half * CHUNK_BYTES + Math.min(bytesRead, end - at);
      hash.update(buffer.subarray(from, to));
      onBytes(Math.max(0, to - from));
      at = next;
    }
    return hash.digest('hex');
  } finally {
    await coming?.catch(() => {});
    closeFiles(descriptors);
  }
}

function startHash(digest: string, bytes: number): Hash {
  return digest.length === 40 ? createHash('sha1').update(`blob ${bytes}\0`) : createHash('sha256');
}
