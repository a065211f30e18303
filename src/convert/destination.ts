/** May we write there, is there room, and what has an earlier run finished? */

import fs from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { ConvertError } from '../common/errors.ts';
import { formatBytes, MIB } from '../common/units.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { CONTAINER_INDEX_FILE } from '../formats/container-index.ts';
import { listNames } from '../formats/files.ts';
import { INDEX_FILE } from '../formats/shard-index.ts';
import type { Companions } from './companions.ts';
import { PARTIAL } from './files.ts';
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

/** `now` is the state that a fresh conversion would start with. */
export function checkDestination(
  options: ConvertOptions,
  checkpoint: Checkpoint,
  shards: readonly PlannedShard[],
  companions: Companions,
  now: ConvertState,
): Destination {
  const destination = resolve(options.destination);
  const present = listDirectory(destination);
  if (present !== null && fs.realpathSync(destination) === fs.realpathSync(checkpoint.directory)) {
    throw new ConvertError('SAME_DIRECTORY', `source and destination are both ${checkpoint.directory}`, {
      hint: 'give a destination that does not exist yet',
    });
  }
  const state = present === null ? null : readState(destination);
  const own = [STATE_FILE, CONTAINER_INDEX_FILE, INDEX_FILE, ...companions.copied, ...shards.map(shard => shard.name)];
  // Without a state file nothing here is known to be ours, except a state file that was being written.
  const allowed = new Set(state ? [...own, ...own.map(name => name + PARTIAL)] : [STATE_FILE + PARTIAL]);
  const foreign = (present ?? []).filter(name => !allowed.has(name));
  // Other parameters can mean other files: tell about the parameters.
  if (state) requireSameConversion(destination, state, now);
  if (foreign.length > 0) throw notEmpty(destination, foreign);

  const finishedShards = shards
    .filter(({ name, bytes }) => state?.finished[name] !== undefined && sizeOf(join(destination, name)) === bytes)
    .map(shard => shard.name);
  const rest = shards.filter(shard => !finishedShards.includes(shard.name));
  const neededBytes = rest.reduce((sum, shard) => sum + shard.bytes, companions.bytes + SPACE_MARGIN_BYTES);
  const freeBytes = (options.freeBytes ?? freeBytesOf)(existingParent(destination));
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

/** Names in a directory; null when it does not exist. */
function listDirectory(path: string): string[] | null {
  const stat = fs.statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return null;
  if (stat.isDirectory()) return fs.readdirSync(path).sort();
  throw new ConvertError('DESTINATION_IS_A_FILE', `${path} is a file; the destination is a directory`, {
    hint: 'give a destination that does not exist yet',
  });
}

function notEmpty(destination: string, names: readonly string[]): ConvertError {
  const finished = names.includes(CONTAINER_INDEX_FILE) ? ' (a finished container)' : '';
  return new ConvertError('DESTINATION_NOT_EMPTY', `${destination} already holds ${listNames(names)}${finished}`, {
    hint: 'give a destination that does not exist yet, or remove this one',
    details: { destination, names: names.slice(0, 100) },
  });
}

function sizeOf(path: string): number | undefined {
  return fs.statSync(path, { throwIfNoEntry: false })?.size;
}

function existingParent(path: string): string {
  let directory = path;
  while (!fs.existsSync(directory)) directory = dirname(directory);
  return directory;
}

function freeBytesOf(directory: string): number {
  const { bavail, bsize } = fs.statfsSync(directory);
  return bavail * bsize;
}
