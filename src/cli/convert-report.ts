/** A conversion as people and programs read it. */

import { formatBytes, formatSeconds } from '../common/units.ts';
import type { ConversionPlan, ConversionReport } from '../convert/types.ts';
import { plural, table } from './report.ts';

/** Arithmetic alone, as it was measured before. */
export interface Estimate {
  readonly seconds: number;
  readonly threads: number;
}

/** Lines of the hub are told for these, since nobody knows what this one brings. */
const LINE_BYTES_PER_SECOND = [10e6, 100e6];
const COMMIT_DIGITS = 7;
/** Of a line. */
const COLUMNS = 80;
/** Stands for a space at which no line ends. */
const NO_BREAK = '\u0000';
const FILE_COLUMNS = 20;

/** What will be written, before anything is. */
export function planText(plan: ConversionPlan, estimate: Estimate): string {
  const { classes } = plan;
  const width = (texts: readonly string[]): number => Math.max(...texts.map(text => text.length));
  const changes = classes.map(({ from, to }) => (from === to ? from : `${from} -> ${to}`));
  const sizes = classes.map(({ bytes }) => formatBytes(bytes));
  const rows = [
    ['source', sourceText(plan)],
    ['destination', whole(plan.destination)],
    ...classes.map((each, i) => [
      each.role,
      [
        changes[i].padEnd(width(changes)),
        sizes[i].padStart(width(sizes)),
        `${each.bitsPerWeight.toFixed(2).padStart(5)} bits/weight`,
        plural(each.tensors, 'tensor'),
      ].join('  '),
    ]),
    [
      'in all',
      `${formatBytes(plan.totalBytes)} in ${plural(plan.shards.length, 'file')}, ${plan.bitsPerWeight.toFixed(2)} bits per weight`,
    ],
    ['space', spaceText(plan)],
    ['time', `${formatSeconds(estimate.seconds)} of arithmetic (${plural(estimate.threads, 'thread')}, measured here)`],
  ];
  if (plan.fetchBytes > 0) rows.push(['download', downloadText(plan.fetchBytes)]);
  const { made, copied, absent } = plan;
  if (made.length > 0) rows.push(['made', listed([...made.slice(0, -1), `${made.at(-1)} (from the metadata)`])]);
  if (copied.length > 0) rows.push(['copied', listed(copied)]);
  if (absent.length > 0) rows.push(['not there', listed(absent)]);
  if (plan.leftOut.length > 0)
    rows.push(['left out', `${plural(plan.leftOut.length, 'tensor')} that no computation needs`]);
  if (plan.finishedShards.length > 0) {
    rows.push(['continues', `${plural(plan.finishedShards.length, 'file')} of an earlier run, kept if intact`]);
  }
  for (const line of plan.notes) rows.push(['note', line]);
  const columns = COLUMNS - 2 - width(rows.map(([label]) => label));
  return table(rows.flatMap(([label, text]) => wrapped(label, text, columns)));
}

function sourceText({ source, family, sourceBytes, repo }: ConversionPlan): string {
  const commit = repo && `${repo.revision} at ${repo.commit.slice(0, COMMIT_DIGITS)}`;
  const revision =
    repo === null ? '' : `, ${repo.revision === repo.commit ? repo.commit.slice(0, COMMIT_DIGITS) : commit}`;
  return `${whole(source)}${revision} (${family}, ${formatBytes(sourceBytes)})`;
}

function spaceText({ neededBytes, freeBytes, peakBytes, totalBytes }: ConversionPlan): string {
  const needed = `${formatBytes(neededBytes)} needed, ${formatBytes(freeBytes)} free`;
  return peakBytes - totalBytes < totalBytes / 100
    ? needed
    : `${needed}; at most ${formatBytes(peakBytes)} at a time, source files included`;
}

function downloadText(bytes: number): string {
  const lines = LINE_BYTES_PER_SECOND.map(speed => `${formatSeconds(bytes / speed)} at ${formatBytes(speed)}/s`);
  return `${formatBytes(bytes)}: ${lines.join(', ')}`;
}

/** A name or a path that stays in one line, however long. */
function whole(name: string): string {
  return name.replaceAll(' ', NO_BREAK);
}

function listed(names: readonly string[]): string {
  return names.map(whole).join(', ');
}

/** One label, as many lines as it takes. */
function wrapped(label: string, text: string, columns: number): string[][] {
  const lines: string[] = [];
  // of several spaces, which columns have, none is lost
  for (const word of text.match(/\s*\S+/g) ?? []) {
    const last = lines.at(-1);
    if (last === undefined || (last + word).length > columns) lines.push(word.trimStart());
    else lines[lines.length - 1] += word;
  }
  return lines.map((line, i) => [i === 0 ? label : '', line.replaceAll(NO_BREAK, ' ')]);
}

/** Bytes behind it are those of all phases; the file is shortened so that the line fits a terminal. */
export function progressLabel(phase: string, file: string): string {
  const name = file.slice(file.lastIndexOf('/') + 1).replace(/\.(?:safetensors|gguf)$/i, '');
  const short = name.length > FILE_COLUMNS ? `...${name.slice(3 - FILE_COLUMNS)}` : name;
  return `in all (${phase} ${short}):`;
}

export function doneText({ plan, written, kept, bytes, fetchedBytes, seconds }: ConversionReport): string {
  const before = kept.length > 0 ? `, ${kept.length} kept from an earlier run` : '';
  const fetched = fetchedBytes > 0 ? `, ${formatBytes(fetchedBytes)} fetched` : '';
  return `wrote ${plan.destination}: ${formatBytes(bytes)}, ${plural(written.length, 'file')}${before}${fetched}, in ${formatSeconds(seconds)}`;
}

export function planJson(plan: ConversionPlan, estimate: Estimate) {
  return {
    source: plan.source,
    repo: plan.repo,
    destination: plan.destination,
    family: plan.family,
    experts: plan.experts,
    dense: plan.dense,
    classes: plan.classes.map(each => ({
      role: each.role,
      tensors: each.tensors,
      weights: each.weights,
      from: each.from,
      to: each.to,
      bits_per_weight: each.bitsPerWeight,
      bytes: each.bytes,
    })),
    shards: plan.shards.map(({ name, bytes }) => ({ name, bytes })),
    copied: plan.copied,
    made: plan.made,
    absent: plan.absent,
    left_out: plan.leftOut,
    notes: plan.notes,
    bits_per_weight: plan.bitsPerWeight,
    total_bytes: plan.totalBytes,
    source_bytes: plan.sourceBytes,
    fetch_bytes: plan.fetchBytes,
    peak_bytes: plan.peakBytes,
    needed_bytes: plan.neededBytes,
    free_bytes: plan.freeBytes,
    arithmetic_seconds: estimate.seconds,
    threads: estimate.threads,
  };
}

export function reportJson(report: ConversionReport, estimate: Estimate) {
  return {
    plan: planJson(report.plan, estimate),
    written: report.written,
    kept: report.kept,
    bytes: report.bytes,
    fetched_bytes: report.fetchedBytes,
    seconds: report.seconds,
  };
}
