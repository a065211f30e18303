/** The drives of one pool, as the engine sees them: the model's own and its mirrors, what is where, and what came from where. */

import { basename, join } from 'node:path';
import type { FileIdentity } from '../formats/checkpoint-types.ts';
import { closeMirrors, type Mirror, type Mirrored, openMirrors } from './mirror-files.ts';
import { driveOf, drivesOfRecords, MAX_MIRRORS, PRIMARY } from './mirror-route.ts';
import { type MirrorLoss, type MirrorSizes, MirrorState } from './mirror-state.ts';
import type { IoMode, OpenFunction } from './open-files.ts';
import { readError } from './read-errors.ts';
import type { RecordTable } from './record-table.ts';

export interface MirrorOptions {
  /** At most MAX_MIRRORS. */
  readonly directories: readonly string[];
  /** Of every file: how many bytes of a copy must be equal before it is used (`mirroredFiles`). */
  readonly headerBytes: readonly number[];
  /** Reads the receipt of a mirror. */
  readonly staged?: Mirrored['staged'];
  /** Gets one line, and the number of the drive, when a mirror fails for the first time. */
  readonly onLoss?: (line: string, drive: number) => void;
}

/** What a reader thread gets. */
export interface SharedMirrors {
  readonly sizes: MirrorSizes;
  readonly state: SharedArrayBuffer;
  readonly descriptors: readonly (readonly number[])[];
  /** By mirror, then by file: all of it was compared once; of the others, records with a hash are compared here. */
  readonly staged: readonly (readonly boolean[])[];
}

export class Drives {
  readonly mirrors: readonly Mirror[];
  /** By drive: what has arrived so far, and in how many loads. */
  readonly bytes = new Float64Array(MAX_MIRRORS + 1);
  readonly reads = new Float64Array(MAX_MIRRORS + 1);
  readonly #table: RecordTable;
  readonly #files: readonly FileIdentity[];
  readonly #onLoss: (line: string, drive: number) => void;
  /** Null without a mirror that can be used. */
  readonly #state: MirrorState | null;

  /** Opens the mirrors; never throws. Until `route` is called every record comes from the model's own drive. */
  constructor(
    table: RecordTable,
    files: readonly FileIdentity[],
    io: IoMode,
    mirrors: MirrorOptions | undefined,
    open?: OpenFunction,
  ) {
    const { directories = [], headerBytes = [], staged, onLoss = () => {} } = mirrors ?? {};
    this.#table = table;
    this.#files = files;
    this.#onLoss = onLoss;
    this.mirrors = openMirrors(directories.slice(0, MAX_MIRRORS), { files, headerBytes, staged }, io, open);
    const usable = this.mirrors.some(mirror => mirror.files > 0);
    this.#state = usable ? new MirrorState({ records: table.records, files: files.length }) : null;
  }

  /** Sends each record to one of the drives that have it, in proportion to `weights` (bytes per second of every drive). */
  route(weights: readonly number[]): void {
    const has = this.#has();
    this.#state?.routes.forEach((_, record, routes) => {
      routes[record] = driveOf(record, weights, has[record]);
    });
  }

  /** Everything that this drive has comes from it: for measuring. Gives the records that it has, of those asked for. */
  routeAll(drive: number, records: Iterable<number>): number[] {
    const has = this.#has();
    this.#state?.routes.forEach((_, record, routes) => {
      routes[record] = has[record] & (1 << drive) ? drive : PRIMARY;
    });
    return [...records].filter(record => has[record] & (1 << drive));
  }

  /** How much of the bytes of these records comes from each drive: fractions of 1. */
  shares(records: Iterable<number>): number[] {
    const bytes = new Array<number>(this.mirrors.length + 1).fill(0);
    let total = 0;
    for (const record of records) {
      const each = this.#table.readBytes(record);
      bytes[this.#state?.driveOf(record) ?? PRIMARY] += each;
      total += each;
    }
    return bytes.map(each => (total === 0 ? 0 : each / total));
  }

  count(drive: number, bytes: number): void {
    this.bytes[drive] += bytes;
    this.reads[drive]++;
  }

  /** For the pool: tells what mirrors have failed since the last call. */
  tellLosses(): void {
    const losses = this.#state?.newLosses() ?? NONE;
    for (const loss of losses) this.#onLoss(this.#lossText(loss), loss.drive);
  }

  shared(): SharedMirrors | null {
    if (this.#state === null) return null;
    const descriptors = this.mirrors.map(mirror => mirror.descriptors);
    const staged = this.mirrors.map(mirror => mirror.staged);
    return { sizes: this.#state.sizes, state: this.#state.buffer, descriptors, staged };
  }

  close(): void {
    closeMirrors(this.mirrors);
  }

  #has(): Uint8Array {
    const state = this.#state;
    const usable = (drive: number, file: number) =>
      this.mirrors[drive - 1].descriptors[file] >= 0 && !state?.isLost(drive, file);
    return drivesOfRecords(this.#table, this.mirrors.length + 1, usable);
  }

  #lossText({ drive, record, failure }: MirrorLoss): string {
    const { directory } = this.mirrors[drive - 1];
    const files = this.#files.map(file => ({ ...file, path: join(directory, basename(file.path)) }));
    const { message } = readError(failure, this.#table, record, files);
    return `WARNING: a mirror fails, its file is no longer used: ${message}; the model's own file is read instead`;
  }
}

const NONE: readonly MirrorLoss[] = [];
