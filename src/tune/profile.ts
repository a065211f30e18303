/** What `coli tune` found, kept for one model on one machine. */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import os from 'node:os';
import { basename, dirname, join } from 'node:path';
import { z } from 'zod';
import { StorageError } from '../common/errors.ts';
import { makeDirectory } from '../common/file-system.ts';
import { configDirectory } from '../common/user-directories.ts';
import { replaceFile } from '../common/whole-file.ts';
import { MAX_READERS, MAX_THREADS } from '../engine/machine.ts';
import { readJsonFile } from '../formats/json.ts';

/** Counted up when a field changes its meaning. */
export const PROFILE_VERSION = 1;
/** A profile has a few lines per candidate. */
const MAX_PROFILE_BYTES = 1024 * 1024;
/** A model of more files is told by the first ones. */
const MAX_FILES = 10_000;

const sample = z.object({
  tokensPerSecond: z.number().positive(),
  p99Ms: z.number().nonnegative(),
  hitRate: z.number().min(0).max(1),
  digest: z.string(),
});

const settings = z.strictObject({
  io: z.enum(['auto', 'direct', 'buffered']).optional(),
  readers: z.int().min(1).max(MAX_READERS).optional(),
  prefetch: z.enum(['auto', 'on', 'off']).optional(),
  policy: z.enum(['auto', 'lru', 'lfru', 'pin']).optional(),
  threads: z.int().min(1).max(MAX_THREADS).optional(),
  chunk: z.int().min(1).max(65_536).optional(),
  expertShare: z.number().gt(0).max(1).optional(),
});

export const profileSchema = z.object({
  version: z.literal(PROFILE_VERSION),
  /** Which model on which machine: see profileKey. */
  key: z.string(),
  created_at: z.iso.datetime(),
  program: z.string(),
  model: z.string(),
  machine: z.string(),
  /** The budget that it was measured with: what pays may be another thing with much more or less memory. */
  budget_bytes: z.number().positive(),
  complete: z.boolean(),
  settings,
  /** Several settings against none of them; the last says what was kept. */
  together: z.array(
    z.object({ settings, kept: z.boolean(), gain: z.number(), before: z.array(sample), after: z.array(sample) }),
  ),
  trials: z.array(
    z.object({
      knob: z.string(),
      value: z.union([z.string(), z.number()]),
      metric: z.enum(['decode', 'prefill']),
      kept: z.boolean(),
      reason: z.string(),
      gain: z.number().nullable(),
      before: z.array(sample),
      after: z.array(sample),
    }),
  ),
});

export type Profile = z.infer<typeof profileSchema>;

/** "AMD EPYC 9B45, 2 threads, 25 GB of memory". */
export function machineText(): string {
  const cpu = os.cpus()[0]?.model.trim() ?? os.arch();
  return `${cpu}, ${os.availableParallelism()} threads, ${Math.round(os.totalmem() / 1e9)} GB of memory`;
}

/**
 * Says which model on which machine and disk a profile is for, without opening a file of it: names and sizes of the files, the
 * disk, the processor. Throws what the file system says.
 */
export function profileKey(model: string): string {
  const stat = fs.statSync(model);
  const names = stat.isDirectory() ? fs.readdirSync(model).sort().slice(0, MAX_FILES) : [basename(model)];
  const directory = stat.isDirectory() ? model : dirname(model);
  const digest = createHash('sha256');
  digest.update(JSON.stringify([machineText(), os.arch(), stat.dev]));
  for (const name of names) {
    // sidecars come and go
    if (!/\.(safetensors|gguf|json)$/.test(name)) continue;
    digest.update(JSON.stringify([name, fs.statSync(join(directory, name), { throwIfNoEntry: false })?.size ?? null]));
  }
  return digest.digest('hex').slice(0, 20);
}

export function profilePath(key: string): string {
  return join(configDirectory(), 'tuning', `${key}.json`);
}

export type LoadedProfile = { readonly profile: Profile } | { readonly profile: null; readonly note: string | null };

/** The profile for a model; none is no news, one that cannot be used is a line to tell. */
export function loadProfile(model: string): LoadedProfile {
  let path = 'the tuning profile';
  try {
    const key = profileKey(model);
    path = profilePath(key);
    if (!fs.existsSync(path)) return { profile: null, note: null };
    const profile = profileSchema.parse(readJsonFile(path, MAX_PROFILE_BYTES));
    if (profile.key !== key) throw new Error('it is for another model or machine');
    return { profile };
  } catch (error) {
    const why = error instanceof z.ZodError ? issueText(error.issues[0]) : (error as Error).message;
    return { profile: null, note: `${path} is not used: ${why}; coli tune makes a new one` };
  }
}

function issueText({ path, message }: z.core.$ZodIssue): string {
  return `${path.join('.') || 'all of it'}: ${message}`;
}

/** To be called before minutes are spent on what could not be kept. Throws PROFILE_UNWRITABLE. */
export function requireProfileDirectory(): void {
  const directory = dirname(profilePath(''));
  writing(directory, () => {
    makeDirectory(directory);
    fs.accessSync(directory, fs.constants.W_OK);
  });
}

/** Writes it whole or not at all; returns where. Throws PROFILE_UNWRITABLE. */
export function saveProfile(profile: Profile): string {
  const path = profilePath(profile.key);
  const text = `${JSON.stringify(profileSchema.parse(profile), null, 1)}\n`;
  writing(path, () => {
    makeDirectory(dirname(path));
    replaceFile(path, text);
  });
  return path;
}

function writing(path: string, work: () => void): void {
  try {
    work();
  } catch (error) {
    throw new StorageError('PROFILE_UNWRITABLE', `${path} cannot be written: ${(error as Error).message}`, {
      hint: 'name a directory that can be written in XDG_CONFIG_HOME',
      details: { path },
      cause: error,
    });
  }
}
