/**
 * Keys and values of conversations on disk. Every full block of KV_BLOCK tokens is one file, named by a hash of the model, the
 * settings that change values, and all tokens up to its end: conversations share their common beginning, saving writes only
 * what is not there, and finding needs no index. What is not exactly what was written is ignored and computed again.
 */

import { hash } from 'node:crypto';
import fs from 'node:fs';
import { join } from 'node:path';
import { codeOf } from '../common/file-system.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { blockKeys, blockName, KV_HEADER_BYTES, KvBlockFile } from './kv-block-file.ts';
import { INDEX_BYTES_PER_FILE, KvDirectory, MAX_KV_FILES } from './kv-directory.ts';

/** Notes are not repeated; after so many different ones the list begins anew. */
const MAX_REMEMBERED_NOTES = 1000;

/** Of one model, when nothing else is asked for: a few long conversations of a large model, many of a small one. */
export const DEFAULT_KV_DIR_BYTES = 16 * 2 ** 30;

export interface KvFilesOptions {
  /** The user's directory; each identity has a directory of its own in it, with its own budget. */
  readonly directory: string;
  /** Everything that the values depend on besides the tokens: model, encoding, activations, version of the arithmetic. */
  readonly identity: Uint8Array;
  /** Keys and values of KV_BLOCK tokens over all layers. */
  readonly blockBytes: number;
  /** Most bytes of all files of this identity. */
  readonly maxBytes: number;
  /** Takes lines worth telling: a file that is ignored, and why nothing is saved. */
  readonly note: (line: string) => void;
}

/** Most memory that KvFiles takes: one block's buffer, and the names of files. */
export function kvFilesMemoryBytes({ blockBytes, maxBytes }: { blockBytes: number; maxBytes: number }): number {
  const fileBytes = KV_HEADER_BYTES + blockBytes;
  return fileBytes + Math.min(Math.floor(maxBytes / fileBytes), MAX_KV_FILES) * INDEX_BYTES_PER_FILE;
}

/** All calls are synchronous, and none throws for anything that the file system does. */
export class KvFiles {
  readonly #identity: Uint8Array;
  readonly #block: KvBlockFile;
  readonly #directory: KvDirectory;
  readonly #note: (line: string) => void;

  constructor(options: KvFilesOptions) {
    this.#identity = hash('sha256', options.identity, 'buffer');
    this.#block = new KvBlockFile(this.#identity, options.blockBytes);
    this.#note = noteOnce(options.note);
    this.#directory = new KvDirectory({
      path: join(options.directory, Buffer.from(this.#identity).toString('hex')),
      fileBytes: this.#block.bytes,
      maxBytes: options.maxBytes,
      note: this.#note,
    });
  }

  /** False when another process writes this model's files, and after an error of the disk while saving. */
  get saves(): boolean {
    return this.#directory.writable;
  }

  /** Bytes of all saved blocks; 0 when another process writes them. */
  get bytes(): number {
    return this.#directory.bytes;
  }

  /** How many leading tokens of `ids` have files; a multiple of KV_BLOCK. Whether these are sound is known when they are read. */
  find(ids: ArrayLike<number>): number {
    if (!this.#directory.readable) return 0;
    let blocks = 0;
    for (const key of blockKeys(this.#identity, ids)) {
      if (!fs.existsSync(this.#directory.pathOf(blockName(blocks, key)))) break;
      blocks++;
    }
    return blocks * KV_BLOCK;
  }

  /**
   * Reads the blocks fromBlock..toBlock-1 of `ids` and hands each to `store`, whose `bytes` are valid during the call. Stops at
   * the first that is not there or not sound. Returns how many blocks were stored.
   */
  restore(
    ids: ArrayLike<number>,
    fromBlock: number,
    toBlock: number,
    store: (block: number, bytes: Uint8Array) => void,
  ): number {
    if (!this.#directory.readable) return 0;
    const chain: string[] = [];
    for (const key of blockKeys(this.#identity, ids)) {
      const block = chain.length;
      if (block >= toBlock) break;
      const name = blockName(block, key);
      if (block >= fromBlock && !this.#readSound(name, block, key)) break;
      if (block >= fromBlock) store(block, this.#block.payload);
      chain.push(name);
    }
    if (this.#directory.writable) this.#directory.use(chain);
    return Math.max(0, chain.length - fromBlock);
  }

  /**
   * Writes the full blocks of `ids` that are not there yet, at most `most` of them, the first first; `load` fills `into` with
   * keys and values of a block. Returns the bytes written: 0 when everything is there, or nothing can be saved.
   */
  save(
    ids: ArrayLike<number>,
    load: (block: number, into: Uint8Array) => void,
    most = Number.POSITIVE_INFINITY,
  ): number {
    const directory = this.#directory;
    if (!directory.writable) return 0;
    const chain = new Set<string>();
    let timeMs: number | null = null;
    let written = 0;
    try {
      for (const key of blockKeys(this.#identity, ids)) {
        const block = chain.size;
        const name = blockName(block, key);
        if (!directory.has(name)) {
          if (written >= most) break;
          // what this block continues must not make room for it
          timeMs ??= directory.use(chain);
          if (!this.#hasRoom(chain)) break;
          load(block, this.#block.payload);
          if (!this.#write(name, block, key, timeMs)) break;
          written++;
        }
        chain.add(name);
      }
    } finally {
      directory.use(chain);
    }
    return written * this.#block.bytes;
  }

  /** Lets another process write. */
  close(): void {
    this.#directory.close();
  }

  #readSound(name: string, block: number, key: string): boolean {
    const path = this.#directory.pathOf(name);
    const result = this.#block.read(path, block, key);
    if (result === 'whole') return true;
    if (result !== 'absent') {
      this.#note(`${path} ${result.ignored}: ignored, its tokens are computed`);
      if (!result.keep) this.#directory.remove(name);
    }
    return false;
  }

  #hasRoom(chain: ReadonlySet<string>): boolean {
    if (this.#directory.makeRoom(chain)) return true;
    if (this.#directory.writable) {
      this.#note(`a conversation is larger than the limit for saved keys and values: its end is not saved`);
    }
    return false;
  }

  #write(name: string, block: number, key: string, timeMs: number): boolean {
    try {
      this.#block.write(this.#directory.pathOf(name), block, key, timeMs);
      this.#directory.added(name, timeMs);
      return true;
    } catch (error) {
      this.#directory.stopSaving(`writing failed (${codeOf(error)})`);
      return false;
    }
  }
}

function noteOnce(note: (line: string) => void): (line: string) => void {
  const noted = new Set<string>();
  return line => {
    if (noted.has(line)) return;
    if (noted.size >= MAX_REMEMBERED_NOTES) noted.clear();
    noted.add(line);
    note(line);
  };
}
