/** coli convert: shows the plan, then writes the container; interrupted, the same command continues. */

import { existsSync } from 'node:fs';
import os from 'node:os';
import { ColiError, UsageError } from '../../common/errors.ts';
import { convertCheckpoint } from '../../convert/convert.ts';
import { estimateSeconds } from '../../convert/estimate.ts';
import { openHubSource } from '../../convert/hub-source.ts';
import { planConversion } from '../../convert/plan.ts';
import type { ConvertOptions, DenseEncoding, ExpertEncoding } from '../../convert/types.ts';
import { findModel } from '../../hub/find-model.ts';
import { type RepoName, tryRepoName } from '../../hub/names.ts';
import { hubCache, hubSettings } from '../../hub/settings.ts';
import { doneText, planJson, planText, progressLabel, reportJson } from '../convert-report.ts';
import { EXIT_INTERRUPTED, Interrupts } from '../interrupts.ts';
import { packageVersion } from '../model.ts';
import { reportError, writeJson, writeText } from '../output.ts';
import { byteAmount, Progress } from '../progress.ts';

/** Files are hashed and written by one thread, which more than these would outrun. */
const MOST_THREADS = 16;
const STOPPED: readonly string[] = ['CONVERT_STOPPED', 'HUB_STOPPED'];

export interface ConvertFlags {
  experts?: ExpertEncoding;
  dense?: DenseEncoding;
  include?: string[];
  dryRun?: boolean;
  json?: boolean;
}

/** `source`: a path, or the name of a model on the hub; what exists as a path is not taken for a name. */
export async function convert(source: string, destination: string, flags: ConvertFlags): Promise<number> {
  const name = existsSync(source) ? null : tryRepoName(source);
  if (name) return convertFromHub(name, destination, flags);
  if (flags.include) {
    throw new UsageError('BAD_USAGE', '--include chooses among the files of the hub, but the source is a path', {
      hint: 'leave it out, or name a model: ORG/NAME',
    });
  }
  return run(destination, flags, async () => source);
}

/** Shard by shard: each is downloaded, converted and taken away again, unless it lies in the cache. */
export function convertFromHub(name: RepoName, destination: string, flags: ConvertFlags): Promise<number> {
  return run(destination, flags, async (signal, progress) => {
    // without the hub, what was fetched before is all there is
    if (isOffline()) return findModel(hubCache(), name);
    return openHubSource({
      name,
      settings: hubSettings(),
      destination,
      include: flags.include,
      signal,
      onProgress: (done, total) => {
        if (!flags.json) progress.update('reading headers:', done, total, (n, of) => `${n} of ${of}`);
      },
    });
  });
}

async function run(
  destination: string,
  flags: ConvertFlags,
  open: (signal: AbortSignal, progress: Progress) => Promise<ConvertOptions['source']>,
): Promise<number> {
  const interrupts = new Interrupts();
  interrupts.listen();
  const progress = new Progress();
  const json = flags.json === true;
  try {
    return await interrupts.during(async signal => {
      const source = await open(signal, progress).finally(() => progress.clear());
      return convertOpened({ ...optionsOf(flags), source, destination, signal }, flags);
    });
  } catch (error) {
    if (!(error instanceof ColiError) || !STOPPED.includes(error.code)) throw error;
    reportError(error, json);
    return EXIT_INTERRUPTED;
  }
}

function optionsOf({ experts, dense }: ConvertFlags): Omit<ConvertOptions, 'source' | 'destination'> {
  return {
    experts: experts ?? 'q4g64',
    dense: dense ?? 'q8',
    writer: `colibri ${packageVersion()}`,
    threads: Math.min(MOST_THREADS, os.availableParallelism()),
  };
}

async function convertOpened(options: ConvertOptions, { dryRun, json }: ConvertFlags): Promise<number> {
  const plan = planConversion(options);
  const threads = options.threads ?? 1;
  const estimate = { seconds: estimateSeconds(plan, threads), threads };
  if (!json) writeText(planText(plan, estimate));
  if (dryRun) {
    if (json) writeJson({ plan: planJson(plan, estimate) });
    else writeText('Nothing was written: this was a dry run.');
    return 0;
  }
  const progress = new Progress();
  const onProgress: ConvertOptions['onProgress'] = ({ phase, shard, doneBytes, totalBytes }) => {
    if (!json) progress.update(progressLabel(phase, shard), doneBytes, totalBytes, byteAmount);
  };
  const report = await convertCheckpoint({ ...options, onProgress }).finally(() => progress.clear());
  if (json) writeJson(reportJson(report, estimate));
  else writeText(doneText(report));
  return 0;
}

function isOffline(): boolean {
  try {
    hubSettings();
    return false;
  } catch (error) {
    if (error instanceof UsageError && error.code === 'HUB_OFFLINE') return true;
    throw error;
  }
}
