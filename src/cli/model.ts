/** Which model a command uses, and how it is opened. */

import { existsSync, readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { PlanError, UsageError } from '../common/errors.ts';
import { formatBytes } from '../common/units.ts';
import type { Engine, EngineInfo, EngineOptions, OpenProgress } from '../engine/api.ts';
import { findModel } from '../hub/find-model.ts';
import { tryRepoName } from '../hub/names.ts';
import { hubCache } from '../hub/settings.ts';
import { loadProfile } from '../tune/profile.ts';
import { type Knob, settingsText, type TunedSettings } from '../tune/settings.ts';
import { type EngineFlags, engineOptions } from './options.ts';
import { note } from './output.ts';
import { byteAmount, Progress } from './progress.ts';

/** Two levels up both from src/cli and from dist/cli. */
const PACKAGE_ROOT = fileURLToPath(new URL('../../', import.meta.url));
const BUNDLED_MODEL = path.join(PACKAGE_ROOT, 'models', 'nano');

const BUNDLED_NOTE = 'No --model given: using the bundled models/nano, a tiny model for trying things out.';

export function packageVersion(): string {
  return JSON.parse(readFileSync(path.join(PACKAGE_ROOT, 'package.json'), 'utf8')).version;
}

/**
 * Where the model of --model or COLI_MODEL lies: a path as it is given, or a name looked up in the cache, never downloaded; what
 * exists as a path is not taken for a name. Without one the bundled model, which one line on stderr says.
 */
export function modelDirectory(flags: EngineFlags, quiet: boolean): string {
  if (flags.model !== undefined) {
    const name = existsSync(flags.model) ? null : tryRepoName(flags.model);
    return name ? findModel(hubCache(), name) : flags.model;
  }
  const howToChoose = 'give a model directory, or the name of a fetched model, with --model or COLI_MODEL';
  if (!existsSync(BUNDLED_MODEL)) {
    throw new UsageError('NO_MODEL', `no --model given, and the bundled model is not at ${BUNDLED_MODEL}`, {
      hint: howToChoose,
    });
  }
  note(BUNDLED_NOTE, quiet);
  return BUNDLED_MODEL;
}

/** What to tell about flags that work but hardly help. */
export function flagNotes(
  { threads, ram }: EngineFlags,
  cpus = os.availableParallelism(),
  memoryBytes = os.totalmem(),
): string[] {
  const notes: string[] = [];
  if (threads !== undefined && threads > cpus)
    notes.push(`--threads ${threads} is more than this machine has (${cpus}); they wait for each other`);
  if (typeof ram === 'number' && ram > memoryBytes)
    notes.push(
      `--ram ${formatBytes(ram)} is more than this machine has (${formatBytes(memoryBytes)}); it may swap or be stopped`,
    );
  return notes;
}

/** All that the user may not expect of a run with these flags, in the order in which it is told. */
export function runNotes(flags: EngineFlags, info: EngineInfo): string[] {
  return [...(flags.model === undefined ? [BUNDLED_NOTE] : []), ...flagNotes(flags), ...info.notes];
}

/** What a plan decides: nothing else does beside one. */
export const DECIDED_BY_PLANS: readonly Knob[] = ['threads', 'readers', 'chunk', 'expertShare'];

/** Settings that take memory: a budget that is smaller than the one they were found with may not have it. */
const TAKES_MEMORY: readonly Knob[] = ['threads', 'readers', 'chunk'];

/**
 * Gives `use` the flags as options, and what `coli tune` has kept for this model here where they say nothing. What that takes of
 * memory is left out when the budget is too small for it: a setting of speed may not refuse a model.
 */
export async function withTuned<T>(
  flags: EngineFlags,
  directory: string,
  use: (options: EngineOptions) => T | Promise<T>,
): Promise<{ value: T; notes: string[] }> {
  const options = engineOptions(flags, directory);
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const { settings, notes, when } = tunedSettings(flags, options);
  if (Object.keys(settings).length === 0) return { value: await use(options), notes };
  const told = (kept: TunedSettings) => `tuned on ${when}: ${settingsText(kept)} (--no-tuned leaves this out)`;
  try {
    const value = await use({ ...settings, ...given, model: options.model });
    return { value, notes: [told(settings)] };
  } catch (error) {
    const isTooSmall = error instanceof PlanError && error.code === 'RAM_TOO_SMALL';
    if (!isTooSmall || !TAKES_MEMORY.some(knob => settings[knob] !== undefined)) throw error;
  }
  const isSmall = ([knob]: [string, unknown]) => !TAKES_MEMORY.includes(knob as Knob);
  const small: TunedSettings = Object.fromEntries(Object.entries(settings).filter(isSmall));
  const large: TunedSettings = Object.fromEntries(Object.entries(settings).filter(each => !isSmall(each)));
  const value = await use({ ...small, ...given, model: options.model });
  const left = `tuned on ${when}: ${settingsText(large)} left out, because the budget has no memory for it`;
  return { value, notes: [...(Object.keys(small).length > 0 ? [told(small)] : []), left] };
}

/** The flags as options with what was tuned, as far as it takes no memory: for who looks at the model without loading it. */
export function tunedWithoutMemory(flags: EngineFlags, directory: string): EngineOptions {
  const options = engineOptions(flags, directory);
  const { settings } = tunedSettings(flags, options);
  const taken = Object.entries(settings).filter(([knob]) => !TAKES_MEMORY.includes(knob as Knob));
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries([...taken, ...given]), model: options.model };
}

/** What the profile of the model says where the flags say nothing. */
function tunedSettings(
  { tuned }: EngineFlags,
  options: EngineOptions,
): { settings: TunedSettings; notes: string[]; when: string } {
  const none = { settings: {}, notes: [], when: '' };
  if (tuned === false) return none;
  const loaded = loadProfile(options.model);
  if (loaded.profile === null) return { ...none, notes: loaded.note === null ? [] : [loaded.note] };
  const isFree = (knob: string) =>
    options[knob as Knob] === undefined &&
    !(knob === 'expertShare' && options.expertSlots !== undefined) &&
    !(options.plan !== undefined && DECIDED_BY_PLANS.includes(knob as Knob));
  const settings = Object.fromEntries(Object.entries(loaded.profile.settings).filter(([knob]) => isFree(knob)));
  const { created_at, budget_bytes } = loaded.profile;
  return { settings, notes: [], when: `${created_at.slice(0, 10)} with ${formatBytes(budget_bytes)}` };
}

export interface OpenExtras {
  /** What the process needs besides the engine. */
  readonly reserveBytes?: number;
  readonly constraints?: boolean;
  readonly scoredTokens?: number;
  readonly onProgress?: (progress: OpenProgress) => void;
}

/** Opens the engine with what the flags say; loading and what it decided are told on stderr. */
export async function openModel(flags: EngineFlags, quiet: boolean, extras: OpenExtras = {}): Promise<Engine> {
  const { reserveBytes, constraints, scoredTokens, onProgress } = extras;
  const { openEngine } = await import('../engine/engine.ts');
  const progress = new Progress();
  const tell = (step: OpenProgress) => {
    onProgress?.(step);
    if (!quiet) progress.update(`${step.phase}:`, step.doneBytes, step.totalBytes, byteAmount);
  };
  const hooks = { onNote: (line: string) => note(line, quiet) };
  const { value: engine, notes } = await withTuned(flags, modelDirectory(flags, quiet), options =>
    openEngine({ ...options, reserveBytes, constraints, scoredTokens }, tell, hooks).finally(() => progress.clear()),
  );
  engine.info.notes.unshift(...notes);
  for (const line of [...flagNotes(flags), ...engine.info.notes]) note(line, quiet);
  return engine;
}
