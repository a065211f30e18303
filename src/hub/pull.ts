/** coli pull: a model of the hub in the cache that all tools share, or as plain files in a directory. */

import fs from 'node:fs';
import { dirname, resolve } from 'node:path';
import { StorageError } from '../common/errors.ts';
import { formatBytes, MIB } from '../common/units.ts';
import { isThere } from '../formats/files.ts';
import { decodeUtf8, isJsonObject, MAX_CONFIG_BYTES, parseJson } from '../formats/json.ts';
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
  /** Is given config.json when there are safetensors weights for it, before any file is fetched; what it throws ends the pull. */
  readonly checkConfig?: (config: Readonly<Record<string, unknown>>) => void;
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
  const startedMs = performance.now();
  const { repo, chosen, skipped, target } = await choose(options);
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

/** What pullModel would do; nothing is written. */
export async function planPull(options: PullOptions): Promise<PullPlan> {
  const { repo, chosen, skipped, target } = await choose(options);
  return makePlan(repo, chosen, skipped, target);
}

async function choose(options: PullOptions) {
  const { name, settings, timing, signal, destination } = options;
  const repo = await openRepo(name.id, name.revision, { settings, timing, signal });
  const { chosen, skipped } = selectFiles(repo.files, options.include);
  checkCollisions(chosen.map(file => file.path));
  const target = destination === undefined ? cacheTarget(settings.cache, repo) : directoryTarget(destination);
  if (options.checkConfig) await showConfig(repo, chosen, options.checkConfig, signal);
  return { repo, chosen, skipped, target };
}

/** A GGUF file says itself what it is. */
async function showConfig(
  repo: HubRepo,
  chosen: readonly HubFile[],
  check: NonNullable<PullOptions['checkConfig']>,
  signal?: AbortSignal,
): Promise<void> {
  const file = chosen.find(({ path }) => path === 'config.json');
  if (!file || file.bytes > MAX_CONFIG_BYTES || !chosen.some(({ path }) => /\.safetensors$/i.test(path))) return;
  const what = `${repo.id}/${file.path}`;
  const config = parseJson(decodeUtf8(await repo.read(file, 0, file.bytes, signal), what), what);
  if (isJsonObject(config)) check(config);
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
  let directory = dirname(resolve(path));
  while (!isThere(directory)) directory = dirname(directory);
  const { bavail, bsize } = fs.statfsSync(directory);
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
