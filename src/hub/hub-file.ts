/** A file as the hub lists it, and the digest that says whether its bytes are the right ones. */

import { createHash, type Hash } from 'node:crypto';

export interface HubFile {
  /** Relative path with slashes, checked. */
  readonly path: string;
  readonly bytes: number;
  /** Lower-case hex SHA-256 of a large file, or null. */
  readonly sha256: string | null;
  /** SHA-1 that git gives the content of a small file (`blob <bytes>\0` before it); null for a large one. */
  readonly gitSha1: string | null;
}

/** The name of its content: what the cache calls the blob. */
export function digestOf({ sha256, gitSha1 }: HubFile): string {
  return (sha256 ?? gitSha1)!;
}

/** Digest of a file that comes in pieces, in the kind that the hub gave for it. */
export class FileHash {
  readonly #file: HubFile;
  #hash: Hash;

  constructor(file: HubFile) {
    this.#file = file;
    this.#hash = startHash(file);
  }

  update(bytes: Uint8Array): void {
    this.#hash.update(bytes);
  }

  restart(): void {
    this.#hash = startHash(this.#file);
  }

  /** Lower-case hex; more may follow. */
  digest(): string {
    return this.#hash.copy().digest('hex');
  }
}

function startHash({ sha256, bytes }: HubFile): Hash {
  return sha256 === null ? createHash('sha1').update(`blob ${bytes}\0`) : createHash('sha256');
}
