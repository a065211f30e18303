/**
 * The history of a model's use while an engine runs: found and read at the start, added to by every lease, saved at safe points,
 * that is while no request runs. It decides what is read when and nothing else, so nothing that goes wrong with it fails
 * anything: it is told once, and the engine goes on without. Only a file that the user names and that can be no history is an error.
 */

import { dirname, join } from 'node:path';
import { RequestError } from '../common/errors.ts';
import { codeOf, makeDirectory } from '../common/file-system.ts';
import { lockState } from '../common/process-lock.ts';
import { C_ENGINE_USAGE, importCUsage, MAX_C_USAGE_BYTES } from '../experts/usage/c-engine-usage.ts';
import { Usage } from '../experts/usage/heat.ts';
import { isUsage, type UsageOwner, usageFileBytes } from '../experts/usage/usage-bytes.ts';
import { LOCK, readAtMost, readUsage, saveUsage } from '../experts/usage/usage-file.ts';
import { modelIdentity } from './identity.ts';
import type { ModelFiles } from './model-files.ts';
import { requireDirectory, type UsageMode, wrongUsage } from './usage-mode.ts';
import { modelFolder, type UsagePlace, usagePlaces } from './usage-place.ts';

/** Saves are at least so far apart: each waits for the disk. */
const SAVE_EVERY_MS = 5000;
/** How often, and how far apart, the last save tries while another process holds the lock: it only holds it for milliseconds. */
const LAST_TRIES = 50;
const LAST_TRY_EVERY_MS = 20;
const OTHER_FILE = 'name a history, or a new file, which is then made';

export class UsageHistory {
  /** What has happened since the last save: told of every lease. */
  readonly recent: Usage;
  readonly #owner: UsageOwner;
  readonly #note: (line: string) => void;
  /** What came before `recent`. */
  #before: Usage;
  /** Null: nothing is saved. */
  #path: string | null = null;
  /** The user's own file: its directory is not made. */
  #named: string | null = null;
  #savedMs = Number.NEGATIVE_INFINITY;
  readonly #now: () => number;

  /** `now`: milliseconds; a test may have a clock of its own. Throws BAD_USAGE for a file that can be no history. */
  constructor(
    files: Pick<ModelFiles, 'checkpoint' | 'shape' | 'family'>,
    mode: UsageMode,
    note: (line: string) => void,
    now: () => number = () => performance.now(),
  ) {
    const { layers, experts, topK } = files.shape;
    const shape = { layers, experts, topK };
    this.#owner = { identity: modelIdentity(files), shape };
    this.#note = note;
    this.#now = now;
    this.recent = new Usage(shape);
    this.#before = new Usage(shape);
    const { directory } = files.checkpoint;
    const usual = usagePlaces(directory, this.#owner.identity);
    const engine = files.family.modelType;
    if (mode === 'on' || mode === 'read') {
      if (!this.#readFirst(usual)) this.#import(join(modelFolder(directory), C_ENGINE_USAGE), engine, false);
    } else {
      this.#readNamed(mode, engine, usual);
    }
    if (mode === 'read') this.#path = null;
  }

  /** The history up to now; the caller's own. */
  total(): Usage {
    const all = new Usage(this.#owner.shape);
    all.add(this.#before);
    all.add(this.recent);
    return all;
  }

  /** To be called while no request runs; saves what is new, if the last save is long enough ago. */
  safePoint(): void {
    if (this.#now() - this.#savedMs >= SAVE_EVERY_MS) this.#save();
  }

  /** Saves what is new, or says that it could not. */
  close(): void {
    for (let tries = 1; !this.#save(); tries++) {
      const lock = `${this.#path}${LOCK}`;
      // what is no file goes away by no waiting
      const isBlocked = lockState(lock) === 'blocked';
      if (isBlocked || tries === LAST_TRIES) {
        this.#stop(
          isBlocked ? `has a lock that is no file (remove ${lock})` : `is locked by another process (${lock})`,
        );
        break;
      }
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, LAST_TRY_EVERY_MS);
    }
    this.#path = null;
  }

  /** False when another process is saving; then later. */
  #save(): boolean {
    if (this.#path === null || this.recent.tokens === 0) return true;
    try {
      if (this.#path !== this.#named) makeDirectory(dirname(this.#path));
      const saved = saveUsage(this.#path, this.#owner, this.#before, this.recent);
      if (saved.kind === 'busy') return false;
      if (saved.kind === 'foreign') this.#stop(saved.why);
      else {
        this.#before = saved.usage;
        this.recent.clear();
        this.#savedMs = this.#now();
      }
    } catch (error) {
      this.#stop(`cannot be written (${codeOf(error)})`);
    }
    return true;
  }

  #stop(why: string): void {
    this.#note(`${this.#path} ${why}: which experts are used most is not saved`);
    this.#path = null;
  }

  /** The first place that may be written and holds nothing foreign is ours; the first history found counts. */
  #readFirst(places: readonly UsagePlace[]): boolean {
    for (const { path, writable } of places) {
      const read = readUsage(path, this.#owner);
      if (read.kind === 'foreign') {
        this.#note(`${path} ${read.why}: it is left as it is, and the history of use is kept elsewhere`);
        continue;
      }
      if (read.kind === 'damaged') this.#note(`${path} ${read.why}: the history of use begins anew`);
      if (writable) this.#path ??= path;
      if (read.kind !== 'whole') continue;
      this.#before = read.usage;
      return true;
    }
    return false;
  }

  /** A file that the user named: ours, to be made, or one of the C engine, which is read only. Throws BAD_USAGE for any other. */
  #readNamed(path: string, engine: string, usual: readonly UsagePlace[]): void {
    this.#named = path;
    let bytes: Buffer;
    try {
      bytes = readAtMost(path, Math.max(MAX_C_USAGE_BYTES, usageFileBytes(this.#owner.shape)));
    } catch (error) {
      const code = codeOf(error);
      if (code === 'ENOENT' || code === 'ENOTDIR') {
        requireDirectory(path);
        this.#path = path;
      } else if (code === 'ELOOP') throw wrongUsage(path, 'is no regular file', OTHER_FILE);
      else this.#note(`${path} cannot be read (${code}): no history of use is read or saved`);
      return;
    }
    if (!isUsage(bytes) && bytes.length > 0) {
      this.#path = usual.find(place => place.writable && isOurs(place.path, this.#owner))?.path ?? null;
      this.#import(path, engine, true);
      return;
    }
    const read = readUsage(path, this.#owner);
    if (read.kind === 'whole') this.#before = read.usage;
    if (read.kind === 'whole' || read.kind === 'damaged') this.#path = path;
    if (read.kind === 'damaged') this.#note(`${path} ${read.why}: the history of use begins anew`);
    if (read.kind === 'foreign') this.#note(`${path} ${read.why}: no history of use is read or saved`);
  }

  #import(path: string, engine: string, chosen: boolean): void {
    try {
      const bytes = readAtMost(path, MAX_C_USAGE_BYTES);
      const { shape } = this.#owner;
      const imported = importCUsage(bytes, { shape, engine, chosen });
      if (imported.usage === null) {
        if (chosen) throw wrongUsage(path, `is no history of this model: it ${imported.why}`, OTHER_FILE);
        this.#note(`${path} ${imported.why}: it is not imported`);
      } else {
        this.#before = imported.usage;
        if (imported.note !== null) this.#note(`${path} ${imported.note}`);
      }
    } catch (error) {
      if (error instanceof RequestError) throw error;
      const code = codeOf(error);
      if (chosen || (code !== 'ENOENT' && code !== 'ENOTDIR'))
        this.#note(`${path} cannot be read (${code}): not imported`);
    }
  }
}

function isOurs(path: string, owner: UsageOwner): boolean {
  return readUsage(path, owner).kind !== 'foreign';
}
