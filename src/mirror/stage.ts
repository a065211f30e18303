/**
 * Fills a mirror by a plan. A file appears under its name only when it is whole, on the disk, and its bytes, read back past the page
 * cache, have the hash that they had while they were copied. Nothing is deleted, and nothing overwritten that is not ours.
 */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { ColiError, StorageError } from '../common/errors.ts';
import { makeDirectory } from '../common/file-system.ts';
import { takeLock } from '../common/process-lock.ts';
import { MIB } from '../common/units.ts';
import { syncDirectory } from '../common/whole-file.ts';
import { modelIdentity } from '../engine/identity.ts';
import {
  RECEIPT_VERSION,
  type Receipt,
  type ReceiptFile,
  readReceipt,
  writeReceipt,
} from '../engine/mirror-receipt.ts';
import type { FileIdentity } from '../formats/checkpoint-types.ts';
import { assertUnchanged } from '../formats/files.ts';
import { readChunks, sha256File } from './chunks.ts';
import { type MirrorOptions, planMirror } from './plan.ts';
import type { MirrorPlan, MirrorProgress, MirrorRun, PlannedFile, StageReport } from './types.ts';

export const PARTIAL = '.coli-partial';
const LOCK_FILE = 'coli.mirror.lock';
/** A mirror is as public as any directory that a user makes. */
const PUBLIC_MODE = 0o777;
/** So much is written before it is waited for: progress then tells what the drive does, not what memory takes. */
const SYNC_EVERY_BYTES = 256 * MIB;

export interface StageOptions extends MirrorOptions, MirrorRun {
  readonly writer: string;
  /** Test hook: called before each step of a file. */
  readonly beforeStep?: (step: 'copy' | 'check' | 'rename' | 'receipt', file: string) => void;
}

/** Throws what planMirror throws, MIRROR_BUSY, MIRROR_UNUSABLE, MIRROR_COPY_DIFFERS, MODEL_CHANGED, MIRROR_STOPPED. */
export async function stageMirror(options: StageOptions): Promise<StageReport> {
  const directory = resolve(options.directory);
  try {
    // what must not be written to is refused before anything is made
    planMirror(options);
    makeDirectory(directory, PUBLIC_MODE);
    const release = lock(directory);
    try {
      // again, now that nobody else changes it
      return await new Staging(options, planMirror(options)).run();
    } finally {
      release();
    }
  } catch (error) {
    throw unusable(directory, error);
  }
}

class Staging {
  readonly #o: StageOptions;
  readonly #plan: MirrorPlan;
  readonly #receipt: Receipt;
  readonly #totalBytes: number;
  #doneBytes = 0;

  constructor(options: StageOptions, plan: MirrorPlan) {
    this.#o = options;
    this.#plan = plan;
    const { files, writer } = options;
    const model = modelIdentity(files);
    const old = readReceipt(plan.directory);
    this.#receipt = { version: RECEIPT_VERSION, writer, model, source: plan.model, files: old?.files ?? [] };
    const open = plan.files.filter(file => file.state !== 'verified');
    // each is read twice: here and there
    this.#totalBytes = 2 * open.reduce((sum, file) => sum + file.bytes, 0);
  }

  async run(): Promise<StageReport> {
    const { files } = this.#plan;
    const kept: string[] = [];
    const foreign: string[] = [...this.#plan.foreign];
    const copied: PlannedFile[] = [];
    for (const file of files) {
      const state = file.state === 'there' ? await this.#compare(file) : file.state;
      if (state === 'verified') kept.push(file.name);
      else if (state === 'foreign') foreign.push(file.name);
      else {
        await this.#copy(file);
        copied.push(file);
      }
    }
    const copiedBytes = copied.reduce((sum, { bytes }) => sum + bytes, 0);
    return { plan: this.#plan, copied: copied.map(({ name }) => name), kept, foreign, copiedBytes };
  }

  async #copy({ name, bytes }: PlannedFile): Promise<void> {
    const { signal, beforeStep } = this.#o;
    const source = this.#source(name);
    const path = join(this.#plan.directory, name);
    const partial = path + PARTIAL;
    // what a run that was killed has left: ours by its name
    fs.rmSync(partial, { force: true });
    try {
      beforeStep?.('copy', name);
      const sha256 = await this.#write(source, partial, name);
      assertUnchanged([source]);
      beforeStep?.('check', name);
      const again = await sha256File(partial, bytes, signal, this.#advance('check', name));
      if (again !== sha256) throw copyDiffers(path, sha256, again);
      beforeStep?.('rename', name);
      fs.renameSync(partial, path);
      syncDirectory(this.#plan.directory);
      beforeStep?.('receipt', name);
      this.#note(name, bytes, sha256);
    } catch (error) {
      fs.rmSync(partial, { force: true });
      throw error;
    }
  }

  /** Copies, and gives the hash of what was read. */
  async #write(source: FileIdentity, partial: string, name: string): Promise<string> {
    const hash = createHash('sha256');
    const advance = this.#advance('copy', name);
    const fd = fs.openSync(partial, 'wx', 0o644);
    try {
      let unsynced = 0;
      for await (const piece of readChunks(source.path, source.bytes, this.#o.signal)) {
        hash.update(piece);
        for (let at = 0; at < piece.length; ) at += fs.writeSync(fd, piece, at);
        unsynced += piece.length;
        if (unsynced >= SYNC_EVERY_BYTES) {
          fs.fdatasyncSync(fd);
          unsynced = 0;
        }
        advance(piece.length);
      }
      fs.fsyncSync(fd);
    } finally {
      fs.closeSync(fd);
    }
    return hash.digest('hex');
  }

  /** A file that is there already goes into the receipt if it is a copy; one of the receipt that is damaged is to be copied anew. */
  async #compare({ name, bytes }: PlannedFile): Promise<'verified' | 'foreign' | 'copy'> {
    const source = this.#source(name);
    const { signal } = this.#o;
    const sha256 = await sha256File(source.path, bytes, signal, this.#advance('compare', name));
    const there = await sha256File(join(this.#plan.directory, name), bytes, signal, this.#advance('compare', name));
    if (there === sha256) {
      this.#note(name, bytes, sha256);
      return 'verified';
    }
    if (!this.#receipt.files.some(entry => entry.name === name)) return 'foreign';
    this.#doneBytes -= 2 * bytes;
    return 'copy';
  }

  #note(name: string, bytes: number, sha256: string): void {
    const { mtimeMs } = fs.statSync(join(this.#plan.directory, name));
    const entry: ReceiptFile = { name, bytes, mtimeMs, sha256 };
    this.#receipt.files = [...this.#receipt.files.filter(each => each.name !== name), entry];
    writeReceipt(this.#plan.directory, this.#receipt);
  }

  #source(name: string): FileIdentity {
    return this.#o.files.checkpoint.files.find(file => basename(file.path) === name)!;
  }

  #advance(phase: MirrorProgress['phase'], file: string): (bytes: number) => void {
    return bytes => {
      this.#doneBytes += bytes;
      this.#o.onProgress?.({ phase, file, doneBytes: this.#doneBytes, totalBytes: this.#totalBytes });
    };
  }
}

function lock(directory: string): () => void {
  const attempt = takeLock(join(directory, LOCK_FILE));
  if (attempt.release !== null) return attempt.release;
  const who = attempt.holder?.pid === undefined ? 'another process' : `process ${attempt.holder.pid}`;
  throw new StorageError('MIRROR_BUSY', `${directory} is being filled by ${who}`, {
    hint: 'wait until it has finished, or stop it and give the command again to continue',
    details: { directory, pid: attempt.holder?.pid ?? null },
  });
}

function copyDiffers(path: string, expected: string, got: string): StorageError {
  return new StorageError(
    'MIRROR_COPY_DIFFERS',
    `${path}: what was read back has the SHA-256 ${got}, what was written had ${expected}`,
    {
      hint: 'the drive, its cable or the memory is faulty: check them (dmesg, SMART) before you trust this drive',
      details: { file: path, expected, got },
    },
  );
}

const HINTS: Readonly<Record<string, string>> = {
  ENOSPC: 'free some space, or give a smaller --budget; then give the same command again to continue',
  EDQUOT: 'free some space, or give a smaller --budget; then give the same command again to continue',
  EROFS: 'the file system is read-only: give a directory on another one',
};

function unusable(directory: string, error: unknown): unknown {
  const { code, syscall, message } = error as NodeJS.ErrnoException;
  if (error instanceof ColiError || code === undefined || syscall === undefined) return error;
  return new StorageError('MIRROR_UNUSABLE', `${directory} cannot be written: ${message}`, {
    hint: HINTS[code] ?? 'check the permissions of the directory, or give another one',
    details: { directory, errno: code },
    cause: error,
  });
}
