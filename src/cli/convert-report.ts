/** A conversion as people and programs read it. */

import { formatBytes, formatSeconds } from '../common/units.ts';
import type { ConversionPlan, ConversionReport } from '../convert/types.ts';
import { plural, table } from './report.ts';

/** What will be written, before anything is. */
export function planText(plan: ConversionPlan): string {
  const classes = plan.classes.map(each => [
    each.role,
    `${each.from} -> ${each.to}, ${each.bitsPerWeight.toFixed(2)} bits per weight, ${formatBytes(each.bytes)} (${plural(each.tensors, 'tensor')})`,
  ]);
  const size = `${formatBytes(plan.totalBytes)} in ${plural(plan.shards.length, 'file')}, ${plan.bitsPerWeight.toFixed(2)} bits per weight`;
  const rows = [
    ['source', `${plan.source} (${plan.family}, ${formatBytes(plan.sourceBytes)})`],
    ['destination', plan.destination],
    ...classes,
    ['in all', size],
    ['space', `${formatBytes(plan.neededBytes)} needed, ${formatBytes(plan.freeBytes)} free`],
  ];
  if (plan.copied.length > 0) rows.push(['copied', plan.copied.join(', ')]);
  if (plan.absent.length > 0) rows.push(['not there', plan.absent.join(', ')]);
  if (plan.leftOut.length > 0)
    rows.push(['left out', `${plural(plan.leftOut.length, 'tensor')} that no computation needs`]);
  if (plan.finishedShards.length > 0) {
    rows.push(['continues', `${plural(plan.finishedShards.length, 'file')} of an earlier run, kept if intact`]);
  }
  for (const line of plan.notes) rows.push(['note', line]);
  return table(rows);
}

export function doneText({ plan, written, kept, bytes, seconds }: ConversionReport): string {
  const before = kept.length > 0 ? `, ${kept.length} kept from an earlier run` : '';
  return `wrote ${plan.destination}: ${formatBytes(bytes)}, ${plural(written.length, 'file')}${before}, in ${formatSeconds(seconds)}`;
}

export function planJson(plan: ConversionPlan) {
  return {
    source: plan.source,
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
    absent: plan.absent,
    left_out: plan.leftOut,
    notes: plan.notes,
    bits_per_weight: plan.bitsPerWeight,
    total_bytes: plan.totalBytes,
    source_bytes: plan.sourceBytes,
    needed_bytes: plan.neededBytes,
    free_bytes: plan.freeBytes,
  };
}

export function reportJson(report: ConversionReport) {
  return {
    plan: planJson(report.plan),
    written: report.written,
    kept: report.kept,
    bytes: report.bytes,
    seconds: report.seconds,
  };
}
