/** A file that grows while it is downloaded, beside the place where it will stand; its length is how far it is. */

import { constants, createReadStream } from 'node:fs';
import { type FileHandle, mkdir, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { ColiError } from '../common/errors.ts';
import { MIB } from '../common/units.ts';
import { statOf, unwritable } from '../formats/files.ts';
import { digestOf, FileHash, type HubFile } from './hub-file.ts';
import { throwIfStopped } from './retry.ts';

/** Not the suffix of other tools: two that append to one file would spoil it for both. */
export const PARTIAL_SUFFIX = '.coli.incomplete';

const HASH_READ_BYTES = 4 * MIB;

export class PartialFile {
  readonly #path: string;
  readonly #handle: FileHandle;
  readonly #hash: FileHash;
  /** Bytes that are there; the next ones go behind them. */
  position = 0;

  private constructor(path: string, handle: FileHandle, hash: FileHash) {
    this.#path = path;
    this.#handle = handle;
    this.#hash = hash;
  }

  /**
   * Opens what an earlier run left for `destination`, or begins. What is there is read once for the digest. A link in its place is
   * refused.
   */
  static async open(destination: string, file: HubFile, signal?: AbortSignal): Promise<PartialFile> {
    const path = `${destination}${PARTIAL_SUFFIX}`;
    const handle = await writing(path, async () => {
      await mkdir(dirname(path), { recursive: true });
      return open(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o644);
    });
    const partial = new PartialFile(path, handle, new FileHash(file));
    try {
      const { size } = await handle.stat();
      if (size > file.bytes) await partial.restart();
      else await partial.#hashExisting(size, signal);
      return partial;
    } catch (error) {
      await handle.close();
      throw error;
    }
  }

  async #hashExisting(size: number, signal?: AbortSignal): Promise<void> {
    const buffer = Buffer.allocUnsafe(Math.min(size, HASH_READ_BYTES));
    while (this.position < size) {
      throwIfStopped(signal);
      const { bytesRead } = await writing(this.#path, () =>
        this.#handle.read(buffer, 0, Math.min(buffer.length, size - this.position), this.position),
      );
      if (bytesRead === 0) break;
      this.#hash.update(buffer.subarray(0, bytesRead));
      this.position += bytesRead;
    }
  }

  async write(chunk: Uint8Array): Promise<void> {
    let done = 0;
    while (done < chunk.length) {
      const { bytesWritten } = await writing(this.#path, () =>
        this.#handle.write(chunk, done, chunk.length - done, this.position + done),
      );
      done += bytesWritten;
    }
    this.#hash.update(chunk);
    this.position += chunk.length;
  }

  async restart(): Promise<void> {
    await writing(this.#path, () => this.#handle.truncate(0));
    this.#hash.restart();
    this.position = 0;
  }

  digest(): string {
    return this.#hash.digest();
  }

  /** Gives the file its name once its bytes are on the disk, so that no power cut can leave a wrong file under that name. */
  async finish(destination: string): Promise<void> {
    await writing(this.#path, async () => {
      await this.#handle.sync();
      await rename(this.#path, destination);
    });
  }

  async remove(): Promise<void> {
    await rm(this.#path, { force: true });
  }

  close(): Promise<void> {
    return this.#handle.close();
  }
}

/** What the file system refuses, as a StorageError with the file and a next step. */
export async function writing<T>(path: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ColiError) throw error;
    throw unwritable(path, error);
  }
}

/** Whether the file at `path` has the size and digest of `file`. */
export async function hasDigest(path: string, file: HubFile, signal?: AbortSignal): Promise<boolean> {
  if (statOf(path)?.size !== file.bytes) return false;
  const hash = new FileHash(file);
  for await (const chunk of createReadStream(path, { highWaterMark: HASH_READ_BYTES })) {
    throwIfStopped(signal);
    hash.update(chunk);
  }
  return hash.digest() === digestOf(file);
}
