/** Checks of what lies beside the model: files of our own, each bound to one model. */

import fs from 'node:fs';
import { join, resolve } from 'node:path';
import { errorToWire } from '../common/errors.ts';
import { lockState } from '../common/process-lock.ts';
import { fingerprint, modelIdentity } from '../engine/identity.ts';
import { BLOCK_NAME, KV_HEADER_BYTES } from '../engine/kv-block-file.ts';
import { stagedFiles } from '../engine/mirror-receipt.ts';
import type { ModelFiles } from '../engine/model-files.ts';
import { checkPlanModel, readPlanFile } from '../engine/plan-options.ts';
import { RECENT_SUFFIX } from '../engine/routing.ts';
import { usageMode } from '../engine/usage-mode.ts';
import { usagePlaces } from '../engine/usage-place.ts';
import { leaseCount } from '../experts/replay/trace.ts';
import { readTrace } from '../experts/replay/trace-format.ts';
import { LOCK, readUsage } from '../experts/usage/usage-file.ts';
import { isThere } from '../formats/files.ts';
import { closeMirrors, mirroredFiles, openMirrors } from '../storage/mirror-files.ts';
import { loadProfile } from '../tune/profile.ts';
import { fail, pass, skip, warn } from './findings.ts';
import type { Check, Context, Finding } from './types.ts';

/** Headers of so many blocks are looked at: a directory may hold a hundred thousand. */
const MAX_BLOCKS_READ = 1000;
const WRITABLE_BY_OTHERS = 0o022;

/** Every file from which a history may come. */
function usageFiles(files: ModelFiles, options: Context['options']): string[] {
  const mode = usageMode(options.usage);
  if (mode === 'off') return [];
  if (mode !== 'on' && mode !== 'read') return [resolve(mode)];
  return usagePlaces(files.checkpoint.directory, modelIdentity(files)).map(({ path }) => path);
}

function usage({ found, options }: Context): Finding {
  const files = found.files!;
  const places = usageFiles(files, options);
  if (places.length === 0) return skip('no history is kept: --usage off');
  const { layers, experts, topK } = files.shape;
  const owner = { identity: modelIdentity(files), shape: { layers, experts, topK } };
  const reads = places.map(path => ({ path, read: readUsage(path, owner), lock: lockState(path + LOCK) }));
  const details = { files: reads.map(({ path, read, lock }) => ({ path, state: read.kind, lock })) };
  const wrong = reads.find(({ read }) => read.kind === 'damaged' || read.kind === 'foreign');
  if (wrong && 'why' in wrong.read) {
    return warn(`the file ${wrong.read.why}`, `move ${wrong.path} away: a new history begins`, details);
  }
  const blocked = reads.find(({ lock }) => lock === 'blocked');
  if (blocked) {
    const lock = blocked.path + LOCK;
    return warn(`${lock} is no file: nothing can be saved`, `remove ${lock}`, details);
  }
  const whole = reads.find(({ read }) => read.kind === 'whole')?.read;
  if (whole?.kind !== 'whole') return pass('none yet: it begins with the first answer', details);
  return pass(`a history of ${whole.usage.tokens} tokens`, { ...details, tokens: whole.usage.tokens });
}

/** The memory of the last passes, by which the eviction policy is chosen. */
function trace({ found, options }: Context): Finding {
  const files = found.files!;
  if (usageMode(options.usage) !== 'on') return skip('kept only with --usage on');
  const path = usageFiles(files, options)
    .map(place => place + RECENT_SUFFIX)
    .find(isThere);
  if (path === undefined) return pass('none yet: it begins with a longer answer');
  try {
    const trace = readTrace(path);
    const details = { path, passes_of_layers: leaseCount(trace), cut: trace.isCut };
    if (trace.header.model === modelIdentity(files)) return pass('the last passes can be read', details);
    return warn('the memory of the last passes is of another model', `delete ${path}: it is made again`, details);
  } catch (error) {
    const { message, code } = errorToWire(error);
    return warn(message, `delete ${path}: it is made again`, { path, code });
  }
}

/** What coli tune has kept for this model on this machine. */
function tuning({ found }: Context): Finding {
  const loaded = loadProfile(found.path!);
  if (loaded.profile) {
    const { settings, created_at, complete } = loaded.profile;
    const names = Object.keys(settings);
    const what = names.length === 0 ? 'nothing was faster than the defaults' : `decides ${names.join(', ')}`;
    return pass(`${what}${complete ? '' : '; tuning was interrupted'}`, { settings, created_at, complete });
  }
  if (loaded.note === null) return pass('none: coli tune makes one');
  return warn(loaded.note, 'run coli tune again', {});
}

function plan({ found, options }: Context): Finding {
  if (options.plan === undefined) return skip('no --plan given');
  const plan = typeof options.plan === 'string' ? readPlanFile(options.plan) : options.plan;
  checkPlanModel(plan, found.files!);
  return pass('the plan can be read and is of this model', { version: plan.version });
}

/** What a run would use of the mirrors, and what not. */
function mirrors({ found, options }: Context): Finding {
  const directories = options.mirrors ?? [];
  if (directories.length === 0) return skip('no --mirror given');
  const { checkpoint } = found.files!;
  const opened = openMirrors(directories, { ...mirroredFiles(checkpoint), staged: stagedFiles }, 'auto');
  closeMirrors(opened);
  const details = {
    mirrors: opened.map(({ directory, files, bytes, direct, notes }) => ({ directory, files, bytes, direct, notes })),
    files: checkpoint.files.length,
  };
  const notes = opened.flatMap(mirror => mirror.notes);
  const fixes = new Set(opened.flatMap(mirror => mirror.fixes));
  if (fixes.size > 0) return warn(notes.join('; '), [...fixes].join('; '), details);
  const shares = opened.map(({ files }) => `${files} of ${checkpoint.files.length}`);
  return pass([`files that agree: ${shares.join(', ')}`, ...notes].join('; '), details);
}

function kvDirectory({ found, options }: Context): Finding {
  if (options.kvDir === undefined) return skip('no --kv-dir given');
  const path = resolve(options.kvDir);
  const stat = fs.lstatSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return pass('not there yet: the server makes it', { path });
  const uid = process.geteuid?.();
  if (!stat.isDirectory()) return fail('not a directory', 'give --kv-dir a directory of its own', { path });
  if (uid !== undefined && stat.uid !== uid && stat.uid !== 0) {
    return fail('it belongs to another user', 'give --kv-dir a directory of your own', { path });
  }
  if (uid !== undefined && (stat.mode & WRITABLE_BY_OTHERS) !== 0) {
    return fail('other users can write there', `chmod go-w ${path}`, { path });
  }
  const names = fs.readdirSync(path).filter(name => BLOCK_NAME.test(name));
  const looked = names.slice(0, MAX_BLOCKS_READ).map(name => identityOf(join(path, name)));
  const own = fingerprint(found.files!, { ...options, model: found.path! });
  const ours = looked.filter(identity => identity === own).length;
  const unreadable = looked.filter(identity => identity === null).length;
  const details = { path, blocks: names.length, looked_at: looked.length, of_this_model: ours, unreadable };
  if (unreadable > 0) {
    return warn(
      `${unreadable} of ${looked.length} blocks cannot be read`,
      'delete them: they are computed again',
      details,
    );
  }
  if (names.length > 0 && ours === 0) {
    return warn('none of its blocks is of this model and these settings', 'use one directory for each model', details);
  }
  return pass(`${ours} of ${looked.length} blocks are of this model`, details);
}

/** Hex; null when the file is too short or cannot be read. */
function identityOf(path: string): string | null {
  const header = Buffer.alloc(KV_HEADER_BYTES);
  try {
    const fd = fs.openSync(
      path,
      fs.constants.O_RDONLY | (fs.constants.O_NOFOLLOW ?? 0) | (fs.constants.O_NONBLOCK ?? 0),
    );
    try {
      if (fs.readSync(fd, header, 0, header.length, 0) < header.length) return null;
      return header.toString('hex', 32, 64);
    } finally {
      fs.closeSync(fd);
    }
  } catch {
    return null;
  }
}

const group = 'sidecars';

export const SIDECAR_CHECKS: readonly Check[] = [
  { id: 'sidecars.usage', group, needs: ['model.tensors'], run: usage },
  { id: 'sidecars.trace', group, needs: ['model.tensors'], run: trace },
  { id: 'sidecars.tune', group, needs: ['model.tensors'], run: tuning },
  { id: 'sidecars.plan', group, needs: ['model.tensors'], run: plan },
  { id: 'sidecars.kv-dir', group, needs: ['model.tensors'], run: kvDirectory },
  { id: 'mirror.files', group, needs: ['model.tensors'], run: mirrors },
];
