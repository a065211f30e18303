/** Loads one record: reads its extents, checks the hash, packs. Runs in a reader thread; never throws for bad data. */

import { alignDown } from '../common/units.ts';
import type { PACKERS } from '../quant/pack.ts';
import type { ReadFunction } from './faults.ts';
import { PRIMARY } from './mirror-route.ts';
import type { MirrorState } from './mirror-state.ts';
import { PAGE, type RecordTable } from './record-table.ts';
import type { Failure, FailureCode } from './request-queue.ts';

/** Longest single read: Node refuses 2 GiB and more. */
export const MAX_PIECE_BYTES = 2 ** 30;

export interface RecordLoaderOptions {
  readonly table: RecordTable;
  /** Descriptor of every file, by its index. */
  readonly descriptors: readonly number[];
  /** Copies of the model: their descriptors by mirror, then by file, and which of these were once compared as a whole. */
  readonly mirrors?: {
    readonly state: MirrorState;
    readonly descriptors: readonly (readonly number[])[];
    readonly staged: readonly (readonly boolean[])[];
  } | null;
  /** All of each arena. */
  readonly arenas: readonly Uint8Array[];
  /** This reader's own staging area; null when no record is packed. */
  readonly staging: { readonly arena: number; readonly offset: number } | null;
  readonly packers: typeof PACKERS;
  /**
   * One byte per record, a bit for each drive from which its hash was right once; null = hashes are checked only of what
   * comes from files of mirrors that were never compared as a whole.
   */
  readonly verified: Uint8Array | null;
  readonly read: ReadFunction;
  /** A multiple of PAGE. */
  readonly pieceBytes: number;
  /** Called after every piece read. */
  readonly onProgress: () => void;
}

export class RecordLoader {
  /** Of the latest load: what came from the drive that gave the record, and the time in all its reads. */
  readBytes = 0;
  serviceUs = 0;
  drive = PRIMARY;
  readonly #o: RecordLoaderOptions;

  constructor(options: RecordLoaderOptions) {
    this.#o = options;
  }

  /**
   * Brings a record to `destination` of an arena. Null = complete and right; anything else = do not use a byte of it. What a
   * mirror cannot give comes from the model's own files, and so does then everything else of the mirror's file.
   */
  load(record: number, arena: number, destination: number): Failure | null {
    const { mirrors, table } = this.#o;
    const drive = mirrors ? mirrors.state.driveOf(record) : PRIMARY;
    this.serviceUs = 0;
    const failed = this.#loadFrom(drive, record, arena, destination);
    if (failed === null || !mirrors || drive === PRIMARY) return failed;
    const own = this.#loadFrom(PRIMARY, record, arena, destination);
    // what cannot be packed from either is not the mirror's fault
    if (failed.code !== 'PACK_FAILED' || own === null) mirrors.state.giveUp(table, drive, record, failed);
    return own;
  }

  #loadFrom(drive: number, record: number, arena: number, destination: number): Failure | null {
    this.drive = drive;
    this.readBytes = 0;
    const { table, staging } = this.#o;
    const packed = table.shape(record).packs.length > 0;
    if (packed && staging === null) return failure('PACK_FAILED', 'no staging area');
    const buffer = this.#o.arenas[packed ? staging!.arena : arena];
    const base = packed ? staging!.offset : destination;
    const first = table.firstExtent(record);
    for (let extent = first; extent < first + table.extentCount(record); extent++) {
      const failed = this.#readExtent(extent, buffer, base + table.target(extent));
      if (failed) return failed;
    }
    const mismatch = this.#checkHash(record, buffer, base);
    if (mismatch) return mismatch;
    return packed ? this.#pack(record, buffer, base, this.#o.arenas[arena], destination) : null;
  }

  #readExtent(extent: number, buffer: Uint8Array, position: number): Failure | null {
    const { table, descriptors, mirrors, read, pieceBytes, onProgress } = this.#o;
    const wanted = table.lead(extent) + table.extentBytes(extent);
    const limit = table.extentReadBytes(extent);
    const start = table.alignedOffset(extent);
    const files = this.drive === PRIMARY ? descriptors : mirrors!.descriptors[this.drive - 1];
    const descriptor = files[table.file(extent)];
    const began = performance.now();
    let got = 0;
    try {
      while (limit > 0 && got < wanted) {
        // A direct read must start on a page: after a count that ends inside one, that page is read again.
        const from = alignDown(got, PAGE);
        const length = Math.min(limit - from, pieceBytes);
        const count = read(descriptor, buffer, position + from, length, start + from);
        if (from + count <= got) return this.#extentFailure('SHORT_READ', extent, got, '');
        got = from + count;
        onProgress();
      }
      return null;
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      return this.#extentFailure('READ_FAILED', extent, got, code ?? message);
    } finally {
      this.readBytes += got;
      this.serviceUs += (performance.now() - began) * 1000;
    }
  }

  #checkHash(record: number, buffer: Uint8Array, base: number): Failure | null {
    const { table } = this.#o;
    const extent = table.firstExtent(record);
    const verified = this.#verified(extent);
    const expected = verified && table.hash(record);
    if (verified === null || expected === null || (Atomics.load(verified, record) & (1 << this.drive)) !== 0)
      return null;
    const from = base + table.dataOffset(extent);
    const hash = sha256(buffer, from, from + table.extentBytes(extent));
    if (!hash.equals(expected)) {
      return this.#extentFailure('HASH_MISMATCH', extent, this.readBytes, hash.toString('hex'));
    }
    Atomics.or(verified, record, 1 << this.drive);
    return null;
  }

  /** Where right hashes are noted; null = not to be checked. */
  #verified(extent: number): Uint8Array | null {
    const { table, mirrors, verified } = this.#o;
    if (verified !== null || !mirrors || this.drive === PRIMARY) return verified;
    return mirrors.staged[this.drive - 1][table.file(extent)] ? null : mirrors.state.verified;
  }

  #pack(record: number, staging: Uint8Array, base: number, arena: Uint8Array, destination: number): Failure | null {
    const { table, packers } = this.#o;
    const first = table.firstExtent(record);
    try {
      for (const step of table.shape(record).packs) {
        const inputs = step.inputs.map(input => {
          const at = base + table.dataOffset(first + input.extent) + input.offset;
          return staging.subarray(at, at + input.bytes);
        });
        const packer = packers[step.packer];
        if (packer === undefined) return failure('PACK_FAILED', `there is no packer "${step.packer}"`);
        const to = destination + step.target;
        packer(inputs, step.rows, step.columns, arena.subarray(to, to + step.bytes), step.params);
      }
      return null;
    } catch (error) {
      return failure('PACK_FAILED', error instanceof Error ? error.message : String(error));
    }
  }

  #extentFailure(code: FailureCode, extent: number, got: number, text: string): Failure {
    const { table } = this.#o;
    const lead = table.lead(extent);
    return {
      code,
      file: table.file(extent),
      offset: table.alignedOffset(extent) + lead,
      expected: table.extentBytes(extent),
      got: Math.min(Math.max(got - lead, 0), table.extentBytes(extent)),
      text,
    };
  }
}

function failure(code: FailureCode, text: string): Failure {
  return { code, file: -1, offset: 0, expected: 0, got: 0, text };
}

function sha256(buffer: Uint8Array, from: number, to: number): Buffer {
  // Not a static import: most readers never hash, and the module costs memory in every thread.
  const hash = process.getBuiltinModule('node:crypto').createHash('sha256');
  for (let at = from; at < to; at += MAX_PIECE_BYTES) {
    hash.update(buffer.subarray(at, Math.min(at + MAX_PIECE_BYTES, to)));
  }
  return hash.digest();
}
