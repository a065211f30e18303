/**
 * One block of keys and values as a file: its name, its bytes, and whether they can be trusted. docs/formats.md has the
 * layout. Nothing is flushed to the disk: a block that a power cut left half-written fails its hash, and is computed again.
 */

import { hash } from 'node:crypto';
import fs from 'node:fs';
import { KV_BLOCK } from '../kernels/kernels.ts';

export const KV_HEADER_BYTES = 128;
export const PARTIAL = '.partial';
export const BLOCK_NAME = /^(\d{8})-[0-9a-f]{64}\.kv$/;

const MAGIC = Buffer.from('coli-kv\n');
const VERSION = 1;
const AT = { version: 8, tokens: 12, payloadBytes: 16, block: 24, identity: 32, key: 64, digest: 96 } as const;
/** Node refuses more than 2 GiB at once. */
const MOST_BYTES_AT_ONCE = 2 ** 30;
/** O_NONBLOCK: opening a named pipe would wait for its writer. Windows has neither. */
const READ = fs.constants.O_RDONLY | (fs.constants.O_NOFOLLOW ?? 0) | (fs.constants.O_NONBLOCK ?? 0);
const WRITABLE_BY_OTHERS = 0o022;
/** The process lacks something; the file may be sound. */
const NOT_THE_FILE = new Set(['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN', 'EINTR']);

/**
 * Keys of the full blocks of `ids`, first block first: hex SHA-256 of identity (32 bytes), key of the block before (zeros
 * for the first) and the ids as u32. Equal beginnings have equal keys, and a key stands for everything before it.
 */
export function* blockKeys(identity: Uint8Array, ids: ArrayLike<number>): Generator<string> {
  const message = Buffer.alloc(64 + KV_BLOCK * 4);
  message.set(identity);
  for (let first = 0; first + KV_BLOCK <= ids.length; first += KV_BLOCK) {
    for (let i = 0; i < KV_BLOCK; i++) message.writeUInt32LE(ids[first + i] >>> 0, 64 + i * 4);
    const key = hash('sha256', message, 'buffer');
    message.set(key, 32);
    yield key.toString('hex');
  }
}

/** `block`: index in the conversation. */
export function blockName(block: number, key: string): string {
  return `${String(block).padStart(8, '0')}-${key}.kv`;
}

/** `ignored`: why, after the file's name. `keep`: nothing is known against the file itself. */
export type BlockRead = 'whole' | 'absent' | { readonly ignored: string; readonly keep: boolean };

/** Reads and writes blocks through one buffer. */
export class KvBlockFile {
  readonly #file: Buffer;
  readonly #identity: Uint8Array;
  /** What `write` saves and `read` has filled. */
  readonly payload: Uint8Array;

  /** `identity`: 32 bytes. */
  constructor(identity: Uint8Array, blockBytes: number) {
    this.#identity = identity;
    this.#file = Buffer.allocUnsafeSlow(KV_HEADER_BYTES + blockBytes);
    this.payload = this.#file.subarray(KV_HEADER_BYTES);
  }

  get bytes(): number {
    return this.#file.length;
  }

  /** Writes the payload under a temporary name, sets its time of last use, and renames it. Throws what the file system says. */
  write(path: string, block: number, key: string, lastUseMs: number): void {
    this.#header(block, key).copy(this.#file);
    this.#digest().copy(this.#file, AT.digest);
    const partial = path + PARTIAL;
    const fd = fs.openSync(partial, 'wx', 0o600);
    try {
      try {
        for (let at = 0; at < this.bytes; ) at += fs.writeSync(fd, this.#file, at, this.#lengthFrom(at), at);
        fs.futimesSync(fd, lastUseMs / 1000, lastUseMs / 1000);
      } finally {
        fs.closeSync(fd);
      }
      fs.renameSync(partial, path);
    } catch (error) {
      fs.rmSync(partial, { force: true });
      throw error;
    }
  }

  /** Fills the payload. Only after 'whole' is it what was written for this block and key. Never throws. */
  read(path: string, block: number, key: string): BlockRead {
    let fd: number;
    try {
      fd = fs.openSync(path, READ);
    } catch (error) {
      return unreadable(error);
    }
    try {
      const problem = this.#fill(fd) ?? this.#problem(block, key);
      return problem === null ? 'whole' : { ignored: problem, keep: false };
    } catch (error) {
      return unreadable(error);
    } finally {
      fs.closeSync(fd);
    }
  }

  /** Reads the whole file; null, or what is wrong with it. */
  #fill(fd: number): string | null {
    const stat = fs.fstatSync(fd);
    if (!stat.isFile()) return 'is no regular file';
    // Windows has no such bits
    if (process.getuid && (stat.mode & WRITABLE_BY_OTHERS) !== 0) return 'can be written by other users';
    if (stat.size !== this.bytes) return `has ${stat.size} bytes instead of ${this.bytes}`;
    for (let at = 0; at < this.bytes; ) {
      const got = fs.readSync(fd, this.#file, at, this.#lengthFrom(at), at);
      if (got === 0) return 'ended while it was read';
      at += got;
    }
    return null;
  }

  #problem(block: number, key: string): string | null {
    const file = this.#file;
    const differs = (expected: Buffer, from: number, to: number) => file.compare(expected, from, to, from, to) !== 0;
    const expected = this.#header(block, key);
    if (differs(expected, 0, AT.version)) return 'is no file of keys and values';
    const version = file.readUInt32LE(AT.version);
    if (version !== VERSION) return `has version ${version} of the format`;
    if (differs(expected, AT.identity, AT.key)) return 'is of another model or other settings';
    if (differs(expected, AT.version, AT.digest)) return 'holds another block';
    return this.#digest().compare(file, AT.digest, KV_HEADER_BYTES) === 0 ? null : 'is damaged (its hash differs)';
  }

  /** Everything before the digest, which is zero here. */
  #header(block: number, key: string): Buffer {
    const header = Buffer.alloc(KV_HEADER_BYTES);
    MAGIC.copy(header);
    header.writeUInt32LE(VERSION, AT.version);
    header.writeUInt32LE(KV_BLOCK, AT.tokens);
    header.writeBigUInt64LE(BigInt(this.payload.length), AT.payloadBytes);
    header.writeUInt32LE(block, AT.block);
    header.set(this.#identity, AT.identity);
    header.write(key, AT.key, 'hex');
    return header;
  }

  #digest(): Buffer {
    return hash('sha256', this.payload, 'buffer');
  }

  #lengthFrom(at: number): number {
    return Math.min(this.bytes - at, MOST_BYTES_AT_ONCE);
  }
}

function unreadable(error: unknown): BlockRead {
  const code = (error as NodeJS.ErrnoException).code ?? String(error);
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'absent';
  if (code === 'ELOOP') return { ignored: 'is no regular file', keep: false };
  return { ignored: `cannot be read (${code})`, keep: NOT_THE_FILE.has(code) };
}
