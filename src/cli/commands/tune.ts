/** coli tune: finds settings that make this model faster on this machine, and keeps them for the next runs. */

import { UsageError } from '../../common/errors.ts';
import { inspectModel } from '../../engine/describe.ts';
import { hardwareThreads } from '../../engine/machine.ts';
import { measureRun, PROMPTS } from '../../tune/measure.ts';
import {
  machineText,
  PROFILE_VERSION,
  type Profile,
  profileKey,
  requireProfileDirectory,
  saveProfile,
} from '../../tune/profile.ts';
import { type Search, search, type Trial } from '../../tune/search.ts';
import type { Knob, TuneFacts } from '../../tune/settings.ts';
import { EXIT_INTERRUPTED, Interrupts } from '../interrupts.ts';
import { DECIDED_BY_PLANS, modelDirectory, packageVersion } from '../model.ts';
import { type EngineFlags, engineOptions } from '../options.ts';
import { note, writeJson, writeText } from '../output.ts';
import { Progress } from '../progress.ts';
import { readTextFile } from '../text-file.ts';
import { trialText, tuneText } from '../tune-report.ts';

export interface TuneFlags extends EngineFlags {
  minutes: number;
  tokens: number;
  pairs: number;
  prompts?: string;
  json?: boolean;
}

export async function tune(flags: TuneFlags): Promise<number> {
  const json = flags.json === true;
  const directory = modelDirectory(flags, json);
  const options = engineOptions(flags, directory);
  requireProfileDirectory();
  const prompts = flags.prompts === undefined ? PROMPTS : promptLines(flags.prompts);
  const info = inspectModel(options);
  const facts = factsOf(info);
  const workload = { prompts, tokens: Math.min(flags.tokens, facts.context - 1) };
  const interrupts = new Interrupts();
  interrupts.listen();
  const progress = new Progress();
  const begun = performance.now();
  const endMs = begun + flags.minutes * 60_000;
  const runTimes: number[] = [];

  let interrupted = false;
  const found = await interrupts.during(signal => {
    signal.addEventListener('abort', () => {
      interrupted = true;
    });
    return search({
      facts,
      fixed: fixedKnobs(flags),
      pairs: flags.pairs,
      interrupted: () => interrupted,
      hasTimeFor: runs => !signal.aborted && performance.now() + runs * mean(runTimes) < endMs,
      measure: async (settings, metric) => {
        const from = performance.now();
        const sample = await measureRun(options, facts, workload, settings, metric, signal);
        runTimes.push(performance.now() - from);
        return sample;
      },
      onTrial: trial => {
        progress.clear();
        note(trialText(trial), json);
      },
      onProgress: (done, total) => {
        const leftMs = Math.min(mean(runTimes) * (total - done), endMs - performance.now());
        if (!json) progress.update('measured', done, total, (d, t) => `${d} of ${t} runs`, leftMs);
      },
    }).finally(() => progress.clear());
  });
  const profile = profileOf(directory, info.plan.budget, found);
  // what an earlier tuning has found is worth more than nothing
  const path = found.trials.some(trial => trial.gain !== null) ? saveProfile(profile) : null;
  if (json) writeJson({ ...profile, path });
  else writeText(tuneText(profile, path, (performance.now() - begun) / 1000));
  return interrupted ? EXIT_INTERRUPTED : 0;
}

function mean(times: readonly number[]): number {
  return times.length === 0 ? 0 : times.reduce((sum, ms) => sum + ms, 0) / times.length;
}

function factsOf(info: ReturnType<typeof inspectModel>): TuneFacts {
  return {
    io: info.directIo ? 'direct' : 'buffered',
    readers: info.readers,
    threads: info.threads,
    hardwareThreads: hardwareThreads(),
    chunk: info.plan.chunkTokens,
    context: info.context,
    slotShare: info.plan.expertSlots / info.totalExperts,
  };
}

/** What the user has said is not tried otherwise. */
function fixedKnobs(flags: TuneFlags): ReadonlySet<Knob> {
  const given: Partial<Record<Knob, unknown>> = {
    io: flags.io,
    readers: flags.readers,
    prefetch: flags.prefetch,
    policy: flags.policy,
    threads: flags.threads,
    chunk: flags.chunk,
    expertShare: flags.expertSlots,
  };
  const planned = flags.plan === undefined ? [] : DECIDED_BY_PLANS;
  return new Set([...planned, ...(Object.keys(given) as Knob[]).filter(knob => given[knob] !== undefined)]);
}

/** Every line is a prompt. */
function promptLines(path: string): string[] {
  const lines = readTextFile(path, '--prompts')
    .split('\n')
    .filter(line => line.trim() !== '');
  if (lines.length >= 2) return lines;
  throw new UsageError('BAD_PROMPTS', `${path} has fewer than two lines that are not empty`, {
    hint: 'write one prompt on each line; the first warms the cache and does not count',
  });
}

function copied<T extends Pick<Trial, 'before' | 'after'>>(measured: T) {
  return { ...measured, before: [...measured.before], after: [...measured.after] };
}

function profileOf(directory: string, budgetBytes: number, { settings, trials, together, complete }: Search): Profile {
  return {
    version: PROFILE_VERSION,
    key: profileKey(directory),
    created_at: new Date().toISOString(),
    program: packageVersion(),
    model: directory,
    machine: machineText(),
    budget_bytes: budgetBytes,
    complete,
    settings,
    together: together.map(copied),
    trials: trials.map(copied),
  };
}
