/** Checks of where the model lies: file system, direct reads, speed, free space. Nothing is written. */

import fs from 'node:fs';
import { dirname, resolve } from 'node:path';
import { formatBytes, MIB } from '../common/units.ts';
import { cacheDirectory, configDirectory } from '../common/user-directories.ts';
import { memoryFacts } from '../engine/machine.ts';
import { expertRecords, type ModelFiles } from '../engine/model-files.ts';
import { DEFAULT_READERS } from '../engine/model-plan.ts';
import { measureRecords } from '../storage/iobench.ts';
import { closeFiles, type IoMode, type OpenFunction, openFiles } from '../storage/open-files.ts';
import { pass, skip, warn } from './findings.ts';
import { directoryOf } from './model.ts';
import { type Mount, mountOf } from './mounts.ts';
import type { Check, Context, Finding } from './types.ts';

/** Reads go over a network, or through a program: every expert pays its latency. */
const REMOTE = /^(?:nfs\d?|cifs|smb\d?|smbfs|9p|ceph|glusterfs|lustre|afs|beegfs|virtiofs|fuse|fuseblk|fuse\..*)$/;
const IN_MEMORY = /^(?:tmpfs|ramfs)$/;
const MEASURE_SECONDS = 1;
/** What measuring takes: the destination that reads go round, and as much again to be safe. */
const MEASURE_MEMORY_BYTES = 1024 * MIB;
/** Disks with moving parts stay below this; every solid-state one is above it. */
const SLOW_BYTES_PER_SECOND = 300e6;
/** Below this there is no room for histories and saved keys and values. */
const LITTLE_SPACE_BYTES = 1e9;

function filesystem({ found, host }: Context): Finding {
  const directories = new Set(found.files!.checkpoint.files.map(({ path }) => dirname(fs.realpathSync(path))));
  const mounts = [...directories].map(directory => mountOf(directory, host.root)).filter(mount => mount !== null);
  if (mounts.length === 0) return skip('this system does not tell');
  const details = { mounts: [...new Map(mounts.map(mount => [mount.point, factsOf(mount)])).values()] };
  const types = [...new Set(mounts.map(({ type }) => type))].join(', ');
  if (mounts.some(({ type }) => REMOTE.test(type))) {
    return warn(
      `${types}: reads go over a network or through another program`,
      'copy the model to a local disk; experts are read many times per second',
      details,
    );
  }
  if (mounts.some(({ type }) => IN_MEMORY.test(type))) {
    return warn(`${types}: the model takes memory twice`, 'move the model to a disk: memory is for experts', details);
  }
  if (mounts.some(({ rotational }) => rotational === true)) {
    return warn(`${types} on a disk with moving parts`, 'move the model to a solid-state disk', details);
  }
  const solid = mounts.every(({ rotational }) => rotational === false) ? ' on a solid-state disk' : '';
  return pass(`${types}${solid}`, details);
}

function factsOf({ point, type, source, readOnly, rotational }: Mount) {
  return { point, type, source, read_only: readOnly, rotational };
}

function directIo({ found, options, host }: Context): Finding {
  if (options.io === 'buffered') return skip('not wanted: --io buffered');
  // with --io direct a refusal is an error, as it is for the engine
  const { note, direct } = openOnce(found.files!, options.io ?? 'auto', host.openFile);
  if (direct) return pass('the files can be read past the page cache', { direct });
  return warn(note ?? 'refused', 'move the model to a local disk that allows direct reads, such as ext4 or xfs', {
    direct,
  });
}

function openOnce(
  { checkpoint }: ModelFiles,
  io: IoMode,
  open?: OpenFunction,
): { note: string | null; direct: boolean } {
  const { descriptors, note, direct } = openFiles(
    checkpoint.files.map(({ path }) => path),
    io,
    open,
  );
  closeFiles(descriptors);
  return { note, direct };
}

async function speed({ found, options, host }: Context): Promise<Finding> {
  if (options.quick) return skip('left out with --quick');
  const { availableBytes, cgroupLeftBytes } = memoryFacts(host.root);
  const usable = Math.min(availableBytes, cgroupLeftBytes ?? Number.POSITIVE_INFINITY);
  const files = found.files!;
  const { table, shape, checkpoint } = files;
  const records = expertRecords(files);
  const recordBytes = table.readBytes(records[0]);
  const depth = options.readers ?? DEFAULT_READERS;
  const memory = MEASURE_MEMORY_BYTES + 2 * depth * table.placedBytes(records[0]);
  if (usable < memory) return skip(`measuring takes ${formatBytes(memory)} of memory, more than is available`);
  const { direct } = openOnce(files, options.io ?? 'auto');
  const measure = await measureRecords({
    files: checkpoint.files,
    table,
    records,
    depth,
    direct,
    seconds: MEASURE_SECONDS,
  });
  const tokenBytes = shape.moeLayers.length * shape.topK * recordBytes;
  const perSecond = measure.bytesPerSecond;
  const details = {
    bytes_per_second: Math.round(perSecond),
    record_bytes: recordBytes,
    depth,
    direct,
    reads: measure.reads,
    median_read_us: Math.round(measure.medianReadUs),
    p99_read_us: Math.round(measure.p99ReadUs),
    expert_bytes_per_token: tokenBytes,
    tokens_per_second_without_cache: perSecond / tokenBytes,
  };
  const cold = (perSecond / tokenBytes).toFixed(perSecond < tokenBytes ? 2 : 1);
  const summary = `${formatBytes(perSecond)}/s in experts of ${formatBytes(recordBytes)}; ${cold} tok/s uncached`;
  if (perSecond >= SLOW_BYTES_PER_SECOND) return pass(summary, details);
  return warn(summary, 'move the model to a faster disk, or give more memory with --ram', details);
}

interface Place {
  readonly what: string;
  readonly path: string;
}

function freeSpace({ found, options, host }: Context): Finding {
  const places: Place[] = [
    { what: 'model', path: directoryOf(found.path!) },
    { what: 'cache', path: cacheDirectory(host.env) },
    { what: 'config', path: configDirectory(host.env) },
    ...(options.kvDir === undefined ? [] : [{ what: 'kv-dir', path: resolve(options.kvDir) }]),
  ];
  const facts = places.map(roomAt);
  const details = { places: facts };
  const usable = facts.filter(({ what, writable }) => writable || what !== 'model');
  const full = usable.filter(({ free_bytes: free }) => free < LITTLE_SPACE_BYTES);
  const least = Math.min(...usable.map(({ free_bytes: free }) => free));
  const closed = facts.filter(({ what, writable }) => !writable && what !== 'model');
  if (closed.length > 0) {
    const what = `no right to write for ${closed.map(place => place.what).join(', ')}`;
    return warn(what, `allow writing to ${closed[0].path}, or set XDG_CACHE_HOME and XDG_CONFIG_HOME`, details);
  }
  if (full.length > 0) {
    const what = `${formatBytes(least)} left for ${full.map(place => place.what).join(', ')}`;
    return warn(what, 'free some space: histories and saved conversations could not be kept', details);
  }
  const readOnly = facts.some(({ what, writable }) => what === 'model' && !writable);
  return pass(`at least ${formatBytes(least)}${readOnly ? '; the model is read-only' : ''}`, details);
}

/** Of the nearest directory above `path` that exists. */
function roomAt({ what, path }: Place) {
  let there = path;
  while (!fs.existsSync(there) && dirname(there) !== there) there = dirname(there);
  const { bavail, bsize } = fs.statfsSync(there);
  return { what, path, free_bytes: bavail * bsize, writable: isWritable(there) };
}

function isWritable(path: string): boolean {
  try {
    fs.accessSync(path, fs.constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

const group = 'storage';

export const STORAGE_CHECKS: readonly Check[] = [
  { id: 'storage.filesystem', group, needs: ['model.tensors'], run: filesystem },
  { id: 'storage.direct-io', group, needs: ['model.tensors'], run: directIo },
  { id: 'storage.speed', group, needs: ['model.tensors'], run: speed },
  { id: 'storage.free-space', group, needs: ['model.path'], run: freeSpace },
];
