/** Whether a mirror is what it should be: every byte of it is read, past the page cache. Writes nothing. */

import fs from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { ColiError, StorageError } from '../common/errors.ts';
import { modelIdentity } from '../engine/identity.ts';
import { type ReceiptFile, readReceipt, requireModel } from '../engine/mirror-receipt.ts';
import type { ModelFiles } from '../engine/model-files.ts';
import type { FileIdentity } from '../formats/checkpoint-types.ts';
import { differenceOf, mirroredFiles } from '../storage/mirror-files.ts';
import { readChunks, sha256File } from './chunks.ts';
import { existingParent, requireOtherDirectory } from './plan.ts';
import type { MirrorProgress, MirrorRun, VerifyReport } from './types.ts';

export interface VerifyOptions extends MirrorRun {
  readonly files: ModelFiles;
  readonly directory: string;
}

interface Task {
  readonly name: string;
  readonly bytes: number;
  /** Null: the receipt names a file that the model does not have. */
  readonly file: FileIdentity | null;
  readonly headerBytes: number;
  /** Null: compared with the model. */
  readonly entry: ReceiptFile | null;
}

/**
 * Files of the receipt by size, header and SHA-256; others that a run would use byte by byte against the model. Throws
 * SAME_DIRECTORY, MIRROR_UNUSABLE, MIRROR_RECEIPT_BAD, MIRROR_OTHER_MODEL, MIRROR_STOPPED.
 */
export async function verifyMirror({
  files,
  directory: given,
  signal,
  onProgress,
}: VerifyOptions): Promise<VerifyReport> {
  const directory = resolve(given);
  existingParent(directory);
  requireOtherDirectory(directory, files);
  const receipt = readReceipt(directory);
  requireModel(receipt, modelIdentity(files), directory);
  const tasks = tasksOf(directory, files, receipt?.files ?? []);
  // compared files are read on both sides
  const totalBytes = tasks.reduce((sum, { bytes, entry }) => sum + (entry ? bytes : 2 * bytes), 0);
  let doneBytes = 0;
  const found: { name: string; bytes: number; problem: string | null }[] = [];
  for (const task of tasks) {
    const advance = (bytes: number): void => {
      doneBytes += bytes;
      const phase: MirrorProgress['phase'] = task.entry ? 'check' : 'compare';
      onProgress?.({ phase, file: task.name, doneBytes, totalBytes });
    };
    const problem = await problemOf(join(directory, task.name), task, signal, advance);
    found.push({ name: task.name, bytes: task.bytes, problem });
  }
  const goodBytes = found.reduce((sum, { bytes, problem }) => sum + (problem === null ? bytes : 0), 0);
  return { model: files.checkpoint.directory, directory, by: receipt ? 'receipt' : 'model', files: found, goodBytes };
}

function tasksOf(directory: string, { checkpoint }: ModelFiles, entries: readonly ReceiptFile[]): Task[] {
  const { files, headerBytes } = mirroredFiles(checkpoint);
  const known = new Map(entries.map(entry => [entry.name, entry]));
  const tasks: Task[] = [];
  for (const [index, file] of files.entries()) {
    const name = basename(file.path);
    const entry = known.get(name) ?? null;
    known.delete(name);
    const isThere = fs.lstatSync(join(directory, name), { throwIfNoEntry: false }) !== undefined;
    if (entry || isThere) tasks.push({ name, bytes: file.bytes, file, headerBytes: headerBytes[index], entry });
  }
  for (const entry of known.values()) {
    tasks.push({ name: entry.name, bytes: entry.bytes, file: null, headerBytes: 0, entry });
  }
  return tasks;
}

/** In words; null = none. */
async function problemOf(
  path: string,
  { bytes, file, headerBytes, entry }: Task,
  signal: AbortSignal | undefined,
  advance: (bytes: number) => void,
): Promise<string | null> {
  if (file === null) return 'the receipt names it, but the model has no such file';
  try {
    if (isSameFile(path, file.path)) return "it is the model's own file, not a copy";
    const difference = differenceOf(path, file, headerBytes);
    if (difference !== null) return difference;
    if (entry === null) return await firstDifference(path, file, signal, advance);
    const sha256 = await sha256File(path, bytes, signal, advance);
    return sha256 === entry.sha256 ? null : `its SHA-256 is ${sha256}, the receipt says ${entry.sha256}`;
  } catch (error) {
    if (error instanceof ColiError && error.code === 'MIRROR_STOPPED') throw stopped(error);
    return error instanceof Error ? error.message : String(error);
  }
}

function stopped(cause: ColiError): StorageError {
  return new StorageError(cause.code, 'stopped before everything was compared', {
    hint: 'nothing is known of the rest; the next time everything is compared from the beginning',
    cause,
  });
}

async function firstDifference(
  path: string,
  file: FileIdentity,
  signal: AbortSignal | undefined,
  advance: (bytes: number) => void,
): Promise<string | null> {
  const own = readChunks(file.path, file.bytes, signal);
  const copy = new Pieces(readChunks(path, file.bytes, signal));
  let at = 0;
  try {
    for await (const piece of own) {
      for (let from = 0; from < piece.length; ) {
        const other = await copy.next(piece.length - from);
        const mine = piece.subarray(from, from + other.length);
        if (Buffer.compare(mine, other) !== 0) {
          return `it differs from the model's file, first at byte ${at + from + mine.findIndex((byte, i) => byte !== other[i])}`;
        }
        from += other.length;
      }
      at += piece.length;
      advance(2 * piece.length);
    }
    return null;
  } finally {
    await copy.close();
  }
}

/** Pieces of another length than they come in: two files need not be read in equal ones. */
class Pieces {
  readonly #source: AsyncGenerator<Uint8Array>;
  #rest = new Uint8Array(0);

  constructor(source: AsyncGenerator<Uint8Array>) {
    this.#source = source;
  }

  /** From 1 to `most` bytes. The source throws before it ends early. */
  async next(most: number): Promise<Uint8Array> {
    if (this.#rest.length === 0) this.#rest = (await this.#source.next()).value;
    const piece = this.#rest.subarray(0, most);
    this.#rest = this.#rest.subarray(piece.length);
    return piece;
  }

  async close(): Promise<void> {
    await this.#source.return(undefined);
  }
}

function isSameFile(a: string, b: string): boolean {
  const [x, y] = [a, b].map(path => fs.statSync(path, { throwIfNoEntry: false }));
  return x !== undefined && y !== undefined && x.dev === y.dev && x.ino === y.ino;
}
