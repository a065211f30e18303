/**
 * The directory of one model's saved blocks: its one writer, its budget, and what goes first. Every use of a block is a use of
 * all blocks before it, so no block is ever used later than the one it continues; among equal times the deepest goes first.
 * So the ends of conversations are evicted before their beginnings, without a table of who continues whom.
 */

import fs from 'node:fs';
import { join } from 'node:path';
import { codeOf, makeDirectory } from '../common/file-system.ts';
import { takeLock } from '../common/process-lock.ts';
import { formatBytes } from '../common/units.ts';
import { BLOCK_NAME, PARTIAL } from './kv-block-file.ts';

export const KV_LOCK_FILE = 'coli.kv.lock';
/** More blocks are not kept, whatever the budget: their names are held in memory. */
export const MAX_KV_FILES = 100_000;
/** What a name in memory takes, with its time; measured. */
export const INDEX_BYTES_PER_FILE = 200;
/** A directory with more entries is not searched to its end. */
const MAX_ENTRIES = 2 * MAX_KV_FILES;
/** The time of last use on the disk may be this much behind; it only matters after a restart. */
const USE_GRANULARITY_MS = 60_000;
const WRITABLE_BY_OTHERS = 0o022;

export interface KvDirectoryOptions {
  readonly path: string;
  /** Size of every file. */
  readonly fileBytes: number;
  readonly maxBytes: number;
  readonly maxEntries?: number;
  readonly note: (line: string) => void;
}

/** Never throws for what the file system does: it says so in one line and saves nothing from then on. */
export class KvDirectory {
  readonly #path: string;
  readonly #fileBytes: number;
  readonly #mostFiles: number;
  readonly #maxEntries: number;
  readonly #note: (line: string) => void;
  /** Name -> time of last use in ms on the disk. In order of use, the next to go first. Empty for a reader. */
  #uses = new Map<string, number>();
  #newestMs = 0;
  #release: (() => void) | null = null;
  #readable = false;
  #writable = false;

  constructor(options: KvDirectoryOptions) {
    this.#path = options.path;
    this.#fileBytes = options.fileBytes;
    this.#mostFiles = Math.min(Math.floor(options.maxBytes / options.fileBytes), MAX_KV_FILES);
    this.#maxEntries = options.maxEntries ?? MAX_ENTRIES;
    this.#note = options.note;
    this.#readable = this.#open();
    if (this.#readable) this.#becomeWriter();
  }

  get readable(): boolean {
    return this.#readable;
  }

  /** False for a reader, and after something went wrong with saving. */
  get writable(): boolean {
    return this.#writable;
  }

  /** Bytes of all blocks; 0 for a reader, which does not know. */
  get bytes(): number {
    return this.#uses.size * this.#fileBytes;
  }

  pathOf(name: string): string {
    return join(this.#path, name);
  }

  /** Whether a file of the right kind and size has this name. */
  has(name: string): boolean {
    const stat = this.#try(() => fs.lstatSync(this.pathOf(name), { throwIfNoEntry: false }));
    const there = stat?.isFile() === true && stat.size === this.#fileBytes;
    if (!this.#writable) return there;
    if (!there) this.#uses.delete(name);
    else if (!this.#uses.has(name)) this.#uses.set(name, wholeMs(stat));
    return there;
  }

  /** A conversation is used: `chain` has its blocks, first to last. Returns the time that its next blocks are to have. */
  use(chain: Iterable<string>): number {
    const names = [...chain].filter(name => this.#uses.has(name));
    const latest = names.length > 0 ? this.#uses.get(names[0])! : 0;
    const timeMs = Date.now() - latest < USE_GRANULARITY_MS ? latest : this.#tick();
    for (const name of names) {
      if (this.#uses.get(name)! < timeMs) this.#setTime(name, timeMs);
    }
    for (const name of names.reverse()) {
      const lastUseMs = this.#uses.get(name);
      if (lastUseMs === undefined) continue;
      this.#uses.delete(name);
      this.#uses.set(name, lastUseMs);
    }
    return timeMs;
  }

  /** Evicts until one more file fits. False when that would take one of `keep`. */
  makeRoom(keep: ReadonlySet<string>): boolean {
    while (this.#writable && this.#uses.size + 1 > this.#mostFiles) {
      const [oldest] = this.#uses.keys();
      if (oldest === undefined || keep.has(oldest)) return false;
      this.remove(oldest);
    }
    return this.#writable;
  }

  added(name: string, timeMs: number): void {
    this.#uses.set(name, timeMs);
  }

  remove(name: string): void {
    if (!this.#writable) return;
    try {
      fs.rmSync(this.pathOf(name), { force: true });
      this.#uses.delete(name);
    } catch (error) {
      this.stopSaving(`${name} cannot be removed (${codeOf(error)})`);
    }
  }

  stopSaving(why: string): void {
    if (this.#writable) this.#note(`saved keys and values in ${this.#path}: ${why}; nothing more is saved`);
    this.#writable = false;
  }

  close(): void {
    this.#writable = false;
    this.#readable = false;
    this.#uses.clear();
    this.#try(() => this.#release?.());
    this.#release = null;
  }

  /** Makes the directory, or takes one that only we can have filled. */
  #open(): boolean {
    try {
      makeDirectory(this.#path);
      const stat = fs.lstatSync(this.#path);
      const uid = process.geteuid?.();
      if (!stat.isDirectory()) return this.#unusable('it is no directory');
      // Windows has neither users nor bits
      if (uid !== undefined && stat.uid !== uid && stat.uid !== 0) return this.#unusable('it belongs to another user');
      if (uid !== undefined && (stat.mode & WRITABLE_BY_OTHERS) !== 0) {
        return this.#unusable('other users can write there');
      }
      return true;
    } catch (error) {
      return this.#unusable(codeOf(error));
    }
  }

  #unusable(why: string): false {
    this.#note(`${this.#path} cannot be used for keys and values: ${why}; none are saved and none are read`);
    return false;
  }

  #becomeWriter(): void {
    const readsOnly = (why: string) =>
      this.#note(`saved keys and values in ${this.#path}: ${why}; they are read, and none are saved`);
    if (this.#mostFiles === 0) {
      readsOnly(`one block takes ${formatBytes(this.#fileBytes)}, which is more than the limit`);
      return;
    }
    try {
      const attempt = takeLock(join(this.#path, KV_LOCK_FILE));
      if (attempt.release === null) {
        readsOnly(`${attempt.holder ? `process ${attempt.holder.pid}` : 'another process'} writes there`);
        return;
      }
      this.#release = attempt.release;
      this.#writable = true;
      this.#scan();
    } catch (error) {
      this.#writable = false;
      readsOnly(`it cannot be written (${codeOf(error)})`);
    }
  }

  /** What is there, with what killed processes left cleaned up. Links are not followed; names that are not ours stay. */
  #scan(): void {
    const found: { name: string; timeMs: number }[] = [];
    let entries = 0;
    let wrong = 0;
    const directory = fs.opendirSync(this.#path, { bufferSize: 1024 });
    try {
      for (let entry = directory.readSync(); entry !== null; entry = directory.readSync()) {
        const { name } = entry;
        if (++entries > this.#maxEntries) {
          this.stopSaving(`more than ${this.#maxEntries} entries`);
          return;
        }
        if (!entry.isFile()) continue;
        if (name.endsWith(PARTIAL) && BLOCK_NAME.test(name.slice(0, -PARTIAL.length))) this.remove(name);
        if (!BLOCK_NAME.test(name)) continue;
        const stat = fs.lstatSync(this.pathOf(name), { throwIfNoEntry: false });
        if (stat?.size === this.#fileBytes) found.push({ name, timeMs: wholeMs(stat) });
        else if (stat) {
          wrong++;
          this.remove(name);
        }
      }
    } finally {
      directory.closeSync();
    }
    if (wrong > 0) this.#note(`saved keys and values in ${this.#path}: ${wrong} of a wrong size removed`);
    // names begin with the index of the block
    found.sort((a, b) => a.timeMs - b.timeMs || (a.name < b.name ? 1 : -1));
    for (const { name, timeMs } of found) this.#uses.set(name, timeMs);
    this.#newestMs = found.at(-1)?.timeMs ?? 0;
    for (const { name } of found.slice(0, Math.max(0, found.length - this.#mostFiles))) this.remove(name);
  }

  /** Later than every time so far, also when the clock was put back. */
  #tick(): number {
    this.#newestMs = Math.max(Date.now(), this.#newestMs + 1);
    return this.#newestMs;
  }

  #setTime(name: string, timeMs: number): void {
    try {
      fs.lutimesSync(this.pathOf(name), timeMs / 1000, timeMs / 1000);
      this.#uses.set(name, timeMs);
    } catch (error) {
      if (codeOf(error) === 'ENOENT') this.#uses.delete(name);
    }
  }

  #try<T>(action: () => T): T | undefined {
    try {
      return action();
    } catch {
      return undefined;
    }
  }
}

/** Compared and set in whole ms: setting what was read must not make a block newer than the one it continues. */
function wholeMs(stat: fs.Stats): number {
  return Math.round(stat.mtimeMs);
}
