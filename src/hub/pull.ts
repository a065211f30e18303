/** coli pull: a model of the hub in the cache that all tools share, or as plain files in a directory. */

import fs from 'node:fs';
import { dirname } from 'node:path';
import { StorageError } from '../common/errors.ts';
import { formatBytes, MIB } from '../common/units.ts';
import { holdingLock } from './cache-layout.ts';
import { checkCollisions } from './file-names.ts';
import type { HubFile } from './hub-file.ts';
import type { RepoName } from './names.ts';
import { bytesHere, fetchFiles, type PulledFile, type PullProgress } from './pull-files.ts';
import { cacheTarget, directoryTarget, type Target } from './pull-targets.ts';
import { type HubRepo, openRepo } from './repo.ts';
import type { Timing } from './retry.ts';
import { type Skipped, selectFiles } from './select.ts';
import type { HubSettings } from './settings.ts';

/** Left free on the disk: others write there too. */
const SPARE_BYTES = 64 * MIB;

export interface PullOptions {
  readonly name: RepoName;
  readonly settings: HubSettings;
  readonly include?: readonly string[];
  /** Plain files go there instead of into the cache. */
  readonly destination?: string;
  readonly signal?: AbortSignal;
  readonly timing?: Timing;
  readonly onPlan?: (plan: PullPlan) => void;
  readonly onProgress?: (progress: PullProgress) => void;
}

export interface PullPlan {
  readonly id: string;
  readonly revision: string;
  readonly commit: string;
  /** Where the model will be. */
  readonly directory: string;
  readonly files: readonly HubFile[];
  readonly skipped: readonly Skipped[];
  readonly totalBytes: number;
  /** Of them, what is still to come. */
  readonly neededBytes: number;
  readonly freeBytes: number;
}

export interface PullReport {
  readonly plan: PullPlan;
  readonly files: readonly PulledFile[];
  readonly fetchedBytes: number;
  readonly seconds: number;
}

/** Lists, chooses, checks the space, downloads what is missing. Given again after any end it continues. */
export async function pullModel(options: PullOptions): Promise<PullReport> {
  const { name, settings, timing, signal } = options;
  const startedMs = performance.now();
  const repo = await openRepo(name.id, name.revision, { settings, timing, signal });
  const { chosen, skipped } = selectFiles(repo.files, options.include);
  checkCollisions(chosen.map(file => file.path));
  const target =
    options.destination === undefined ? cacheTarget(settings.cache, repo) : directoryTarget(options.destination);
  return holdingLock(target.lock, options.destination === undefined ? repo.id : target.directory, async () => {
    const plan = makePlan(repo, chosen, skipped, target);
    options.onPlan?.(plan);
    checkSpace(plan);
    const files = await fetchFiles(repo, chosen, target, options);
    await target.finish();
    const downloads = [...new Set(files.map(({ download }) => download))];
    const fetchedBytes = downloads.reduce((sum, download) => sum + (download?.fetchedBytes ?? 0), 0);
    return { plan, files, fetchedBytes, seconds: (performance.now() - startedMs) / 1000 };
  });
}

function makePlan(repo: HubRepo, files: readonly HubFile[], skipped: readonly Skipped[], target: Target): PullPlan {
  // the same content under two names is one file of the cache
  const places = new Map(files.map(file => [target.pathOf(file), file]));
  let totalBytes = 0;
  let neededBytes = 0;
  for (const [path, file] of places) {
    totalBytes += file.bytes;
    neededBytes += file.bytes - bytesHere(path, file);
  }
  const { id, revision, commit } = repo;
  const { directory } = target;
  return {
    id,
    revision,
    commit,
    directory,
    files,
    skipped,
    totalBytes,
    neededBytes,
    freeBytes: freeBytes(target.lock),
  };
}

/** Of the file system that `path`, which need not exist, is on. */
function freeBytes(path: string): number {
  const { bavail, bsize } = fs.statfsSync(dirname(path));
  return bavail * bsize;
}

function checkSpace({ neededBytes, freeBytes: free, directory }: PullPlan): void {
  if (neededBytes === 0 || neededBytes + SPARE_BYTES <= free) return;
  const short = formatBytes(neededBytes + SPARE_BYTES - free);
  throw new StorageError(
    'NO_SPACE',
    `the download needs ${formatBytes(neededBytes)} and there are ${formatBytes(free)} free: ${short} short`,
    {
      hint: 'free some space, set HF_HUB_CACHE to another disk, or write to one with --dest',
      details: { directory, neededBytes, freeBytes: free },
    },
  );
}
