/** May we write there, is there room, and what has an earlier run finished? */

import fs from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { ConvertError } from '../common/errors.ts';
import { formatBytes, MIB } from '../common/units.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { CONTAINER_INDEX_FILE } from '../formats/container-index.ts';
import { listNames } from '../formats/files.ts';
import { INDEX_FILE } from '../formats/shard-index.ts';
import { DOWNLOADS, destinationError, PARTIAL } from './files.ts';
import { LOCK_FILE } from './lock.ts';
import { type ConvertState, readState, requireSameConversion, STATE_FILE } from './state.ts';
import type { ConvertOptions, PlannedShard } from './types.ts';

/** Left free on the disk: indexes, state file, and room for the system to breathe. */
const SPACE_MARGIN_BYTES = 64 * MIB;

export interface Destination {
  readonly destination: string;
  /** What an earlier run left, or a fresh state. */
  readonly state: ConvertState;
  readonly finishedShards: readonly string[];
  readonly neededBytes: number;
  readonly freeBytes: number;
}

/**
 * `now` is the state that a fresh conversion would start with, `copied` the names of its small files. `peakOf`: the most that
 * shards which are still to be written take on the disk.
 */
export function checkDestination(
  options: ConvertOptions,
  checkpoint: Checkpoint,
  shards: readonly PlannedShard[],
  copied: readonly string[],
  now: ConvertState,
  peakOf: (rest: readonly PlannedShard[]) => number,
): Destination {
  const destination = resolve(options.destination);
  const parent = writableParent(destination);
  const present = parent === destination ? fs.readdirSync(destination).sort() : null;
  if (present !== null && fs.realpathSync(destination) === realPath(checkpoint.directory)) {
    throw new ConvertError('SAME_DIRECTORY', `source and destination are both ${checkpoint.directory}`, {
      hint: 'give a destination that does not exist yet',
    });
  }
  const state = present === null ? null : readState(destination);
  const own = [STATE_FILE, CONTAINER_INDEX_FILE, INDEX_FILE, ...copied, ...shards.map(shard => shard.name)];
  // Without a state file nothing here is known to be ours, except a state file that was being written.
  const allowed = new Set([
    LOCK_FILE,
    ...(state ? [DOWNLOADS, ...own, ...own.map(name => name + PARTIAL)] : [STATE_FILE + PARTIAL]),
  ]);
  const foreign = (present ?? []).filter(name => !allowed.has(name));
  // Other parameters can mean other files: tell about the parameters.
  if (state) requireSameConversion(destination, state, now);
  if (foreign.length > 0) throw notEmpty(destination, foreign);

  const finishedShards = shards
    .filter(({ name, bytes }) => state?.finished[name] !== undefined && sizeOf(join(destination, name)) === bytes)
    .map(shard => shard.name);
  const rest = shards.filter(shard => !finishedShards.includes(shard.name));
  const neededBytes = peakOf(rest) + SPACE_MARGIN_BYTES;
  const freeBytes = (options.freeBytes ?? freeBytesOf)(parent);
  if (freeBytes < neededBytes) {
    const short = formatBytes(neededBytes - freeBytes);
    throw new ConvertError(
      'NO_SPACE',
      `${destination} needs ${formatBytes(neededBytes)} and has ${formatBytes(freeBytes)} free: ${short} short`,
      { hint: 'free some space, or give a destination on another disk', details: { neededBytes, freeBytes } },
    );
  }
  return { destination, state: state ?? now, finishedShards, neededBytes, freeBytes };
}

/** The destination if it exists, or else the nearest directory above it; refused unless files can be made in it. */
function writableParent(destination: string): string {
  try {
    let path = destination;
    // a link counts as existing: one that leads nowhere is refused below instead of passed over
    while (!isLinked(path)) path = dirname(path);
    if (!fs.statSync(path).isDirectory()) throw notADirectory(destination, path);
    fs.accessSync(path, fs.constants.W_OK | fs.constants.X_OK);
    return path;
  } catch (error) {
    throw destinationError(destination, error);
  }
}

/** Undefined for the name of a source on the hub. */
function realPath(path: string): string | undefined {
  return fs.existsSync(path) ? fs.realpathSync(path) : undefined;
}

function isLinked(path: string): boolean {
  try {
    return fs.lstatSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (error) {
    // below a file: the walk up will find it
    if ((error as NodeJS.ErrnoException).code === 'ENOTDIR') return false;
    throw error;
  }
}

function notADirectory(destination: string, path: string): ConvertError {
  const what = path === destination ? `${path} is a file` : `${destination} lies below ${path}, which is a file`;
  return new ConvertError('DESTINATION_IS_A_FILE', `${what}; the destination is a directory`, {
    hint: 'give a destination that does not exist yet',
    details: { destination, file: path },
  });
}

function notEmpty(destination: string, names: readonly string[]): ConvertError {
  const isContainer = names.includes(CONTAINER_INDEX_FILE);
  const finished = isContainer ? ' (a finished container)' : '';
  return new ConvertError('DESTINATION_NOT_EMPTY', `${destination} already holds ${listNames(names)}${finished}`, {
    hint: `give a destination that does not exist yet${isContainer ? ', or remove this one' : ''}`,
    details: { destination, names: names.slice(0, 100) },
  });
}

function sizeOf(path: string): number | undefined {
  return fs.statSync(path, { throwIfNoEntry: false })?.size;
}

function freeBytesOf(directory: string): number {
  const { bavail, bsize } = fs.statfsSync(directory);
  return bavail * bsize;
}
