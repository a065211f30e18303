/** Downloads and the cache as people and programs read them. */

import { formatBytes, formatSeconds } from '../common/units.ts';
import { listNames, quote } from '../formats/files.ts';
import type { CachedRepo, CachedRevision } from '../hub/cache-scan.ts';
import type { PullPlan, PullReport } from '../hub/pull.ts';
import type { PullProgress } from '../hub/pull-files.ts';
import type { Removal } from '../hub/remove.ts';
import { modelTypes } from '../models/registry.ts';
import { type Amount, byteAmount } from './progress.ts';
import { plural, table } from './report.ts';

const COMMIT_DIGITS = 7;

/** What will be fetched, before anything is. */
export function pullPlanText(plan: PullPlan): string {
  const here = plan.totalBytes - plan.neededBytes;
  const already = here > 0 ? `, ${formatBytes(here)} already here` : '';
  const rows = [
    ['model', `${plan.id}, ${revisionText(plan.revision, plan.commit)}`],
    ['directory', plan.directory],
    ['files', `${plan.files.length}, ${formatBytes(plan.totalBytes)}${already}`],
    ['space', `${formatBytes(plan.neededBytes)} needed, ${formatBytes(plan.freeBytes)} free`],
  ];
  for (const { reason, files } of plan.skipped) {
    const bytes = files.reduce((sum, file) => sum + file.bytes, 0);
    const names = listNames(
      files.map(({ path }) => path),
      3,
    );
    rows.push(['skipped', `${plural(files.length, 'file')}, ${formatBytes(bytes)}: ${reason} (${names})`]);
  }
  return table(rows);
}

/** `model`: what --model takes for it from now on; `cannotRun`: why it takes it not. */
export function pullDoneText(
  { plan, files, fetchedBytes, seconds }: PullReport,
  model: string,
  cannotRun: string | null = null,
): string {
  const downloads = files.flatMap(({ download }) => download ?? []);
  const reconnects = downloads.reduce((sum, each) => sum + each.reconnects, 0);
  const bad = files.filter(({ download }) => download !== null && download.mismatches > 0);
  const lines = [
    `${fetchedBytes > 0 ? `fetched ${formatBytes(fetchedBytes)} in ${formatSeconds(seconds)}` : 'everything was already here'}: ${plan.directory}`,
  ];
  if (reconnects > 0)
    lines.push(`the connection broke ${reconnects === 1 ? 'once' : `${reconnects} times`} on the way`);
  if (bad.length > 0) {
    const names = listNames(bad.map(({ file }) => file.path));
    lines.push(`came with a wrong digest and were fetched anew: ${names}`);
  }
  lines.push(cannotRun === null ? `use it with --model ${model}` : `note: ${cannotRun}`);
  return lines.join('\n');
}

export function pullPlanJson(plan: PullPlan) {
  return {
    name: plan.id,
    revision: plan.revision,
    commit: plan.commit,
    directory: plan.directory,
    files: plan.files.map(file => ({
      path: file.path,
      bytes: file.bytes,
      sha256: file.sha256,
      git_sha1: file.gitSha1,
    })),
    skipped: skippedJson(plan),
    total_bytes: plan.totalBytes,
    needed_bytes: plan.neededBytes,
    free_bytes: plan.freeBytes,
  };
}

function skippedJson({ skipped }: PullPlan) {
  return skipped.map(({ reason, files }) => ({ reason, files: files.map(({ path }) => path) }));
}

export function pullJson({ plan, files, fetchedBytes, seconds }: PullReport) {
  return {
    name: plan.id,
    revision: plan.revision,
    commit: plan.commit,
    directory: plan.directory,
    files: files.map(({ file, download }) => ({
      path: file.path,
      bytes: file.bytes,
      sha256: file.sha256,
      git_sha1: file.gitSha1,
      fetched_bytes: download?.fetchedBytes ?? 0,
      resumed_bytes: download?.resumedBytes ?? 0,
      reconnects: download?.reconnects ?? 0,
      mismatches: download?.mismatches ?? 0,
    })),
    skipped: skippedJson(plan),
    total_bytes: plan.totalBytes,
    fetched_bytes: fetchedBytes,
    seconds,
  };
}

/** The speed since the first byte came, and what is left at that speed; null while nothing has come. */
export class PullSpeed {
  readonly #now: () => number;
  #startedMs: number | null = null;

  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  amount({ doneBytes, totalBytes, fetchedBytes }: PullProgress): { amount: Amount; etaMs: number | null } {
    if (fetchedBytes === 0) return { amount: byteAmount, etaMs: null };
    this.#startedMs ??= this.#now();
    const elapsedMs = this.#now() - this.#startedMs;
    if (elapsedMs === 0) return { amount: byteAmount, etaMs: null };
    const bytesPerMs = fetchedBytes / elapsedMs;
    return {
      amount: (done, total) => `${byteAmount(done, total)}, ${formatBytes(Math.round(bytesPerMs * 1000))}/s`,
      etaMs: (totalBytes - doneBytes) / bytesPerMs,
    };
  }
}

/** One line per revision, in columns. */
export function cacheText(cache: string, repos: readonly CachedRepo[]): string {
  if (repos.length === 0) return `no models in ${cache}; coli pull ORG/NAME fetches one`;
  const rows = [['NAME', 'REVISION', 'SIZE', 'FAMILY', 'STATE']];
  for (const repo of repos) rows.push(...repoRows(repo));
  const widths = [0, 1, 2, 3].map(column => Math.max(...rows.map(row => row[column].length)));
  const total = repos.reduce((sum, { bytes }) => sum + bytes, 0);
  const line = (row: string[]) => row.map((cell, i) => (i < widths.length ? cell.padEnd(widths[i]) : cell)).join('  ');
  return [...rows.map(line), `${formatBytes(total)} in ${cache}`].join('\n');
}

/** What an unfinished download has left counts to the revision that it is for, when this is plain. */
function repoRows(repo: CachedRepo): string[][] {
  const { id } = repo.folder;
  const incomplete = repo.revisions.filter(({ missing }) => missing.length > 0);
  const only = incomplete.length === 1 ? incomplete[0] : null;
  const rows = repo.revisions.map(each => [
    id,
    each.refs.length > 0 ? `${each.refs.join(', ')} (${short(each.commit)})` : short(each.commit),
    formatBytes(each.bytes + (each === only ? repo.unfinishedBytes : 0)),
    each.family === null ? '-' : quote(each.family).slice(1, -1),
    stateText(each),
  ]);
  if ((repo.unfinishedFiles > 0 && only === null) || rows.length === 0) {
    const state = `unfinished download (${plural(repo.unfinishedFiles, 'file')})`;
    rows.push([id, '-', formatBytes(repo.unfinishedBytes), '-', state]);
  }
  return rows;
}

function stateText({ missing, weightFiles, hasSafetensors, family, problem, refs }: CachedRevision): string {
  if (problem !== null) return `damaged: ${problem}`;
  if (weightFiles === 0) return 'incomplete: all weights missing';
  if (missing.length > 0) return `incomplete: ${missing.length} of ${weightFiles} weight files missing`;
  if (hasSafetensors && family !== null && !modelTypes.includes(family)) return 'complete, cannot run';
  return refs.length > 0 ? 'complete' : 'complete, no branch or tag';
}

export function cacheJson(cache: string, repos: readonly CachedRepo[]) {
  return {
    cache,
    models: repos.map(({ folder, revisions, unfinishedFiles, unfinishedBytes, bytes }) => ({
      name: folder.id,
      bytes,
      unfinished_files: unfinishedFiles,
      unfinished_bytes: unfinishedBytes,
      revisions: revisions.map(each => ({
        commit: each.commit,
        refs: each.refs,
        directory: each.directory,
        bytes: each.bytes,
        family: each.family,
        complete: each.missing.length === 0 && each.problem === null,
        missing: each.missing,
        problem: each.problem,
      })),
    })),
    total_bytes: repos.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}

/** What is about to go: "org/name (2 revisions, 13.8 GB)". */
export function removalText({ name, commits, bytes, sharedBytes }: Removal): string {
  const which = name.hasRevision
    ? `revision ${short(commits[0] ?? name.revision)}`
    : plural(commits.length, 'revision');
  const shared = sharedBytes > 0 ? `; ${formatBytes(sharedBytes)} stay for other revisions` : '';
  return `${name.id} (${which}, ${formatBytes(bytes)}${shared})`;
}

function revisionText(revision: string, commit: string): string {
  return revision === commit ? `commit ${short(commit)}` : `${revision} (commit ${short(commit)})`;
}

function short(commit: string): string {
  return commit.slice(0, COMMIT_DIGITS);
}
