/** Plans and findings about mirrors, as people and programs read them. */

import { formatBytes } from '../common/units.ts';
import type { MirrorPlan, StageReport, VerifyReport } from '../mirror/types.ts';
import { percent, plural, table } from './report.ts';

/** More files than these are summed up: the list is for people, --json has all. */
const LISTED_FILES = 12;

const STATES = { verified: 'there, checked', there: 'there, to be compared', copy: 'to be copied' } as const;
const LIMITS = {
  budget: 'the budget holds no more of what would help',
  space: 'the drive holds no more of what would help: see --reserve',
} as const;

export function mirrorPlanText(plan: MirrorPlan): string {
  const { files, usageTokens, copyBytes } = plan;
  const rows = [
    ['model', plan.model],
    ['mirror', plan.directory],
    ['files', `${files.length} of ${plan.modelFiles}, ${formatBytes(plan.totalBytes)}`],
    [
      'to copy',
      `${formatBytes(copyBytes)}${plan.budgetBytes === null ? '' : ` (budget ${formatBytes(plan.budgetBytes)})`}`,
    ],
    [
      'free',
      `${formatBytes(plan.freeBytes)} now, ${formatBytes(plan.projectedFreeBytes)} afterwards (reserve ${formatBytes(plan.reserveBytes)})`,
    ],
    [
      'serves',
      `up to ${percent(plan.expertShare, plan.expertShare > 0 && plan.expertShare < 0.1 ? 1 : 0)} of what is read for experts`,
    ],
    [
      'by',
      usageTokens > 0
        ? `use of the experts in ${plural(Math.round(usageTokens), 'token')}, hottest first`
        : 'no history of use: every expert counts the same (use the model, then plan again)',
    ],
  ];
  if (plan.limit) rows.push(['limit', LIMITS[plan.limit]]);
  for (const file of files.slice(0, LISTED_FILES)) {
    rows.push(['file', `${file.name}  ${formatBytes(file.bytes)}, ${STATES[file.state]}`]);
  }
  if (files.length > LISTED_FILES) rows.push(['', `and ${files.length - LISTED_FILES} more`]);
  for (const note of plan.notes) rows.push(['note', note]);
  return table(rows);
}

export function mirrorPlanJson(plan: MirrorPlan): Record<string, unknown> {
  return {
    version: 1,
    model: plan.model,
    mirror: plan.directory,
    budget_bytes: plan.budgetBytes,
    reserve_bytes: plan.reserveBytes,
    free_bytes: plan.freeBytes,
    projected_free_bytes: plan.projectedFreeBytes,
    usage_tokens: plan.usageTokens,
    model_files: plan.modelFiles,
    selected_bytes: plan.totalBytes,
    copy_bytes: plan.copyBytes,
    expert_share: plan.expertShare,
    limit: plan.limit,
    foreign: plan.foreign,
    files: plan.files,
    notes: plan.notes,
  };
}

export function stageText({ plan, copied, kept, foreign, copiedBytes }: StageReport): string {
  const lines = [
    `${plural(copied.length, 'file')} copied (${formatBytes(copiedBytes)}) and read back, ${kept.length} ${kept.length === 1 ? 'was' : 'were'} there and right.`,
    ...foreign.map(
      name => `${name} is there and is no copy of the model's file: it was left as it is, and is not to be used.`,
    ),
  ];
  if (copied.length + kept.length > 0) lines.push(`To use it: --mirror ${plan.directory}`);
  return lines.join('\n');
}

export function stageJson({ plan, copied, kept, foreign, copiedBytes }: StageReport): Record<string, unknown> {
  return { version: 1, plan: mirrorPlanJson(plan), copied, kept, foreign, copied_bytes: copiedBytes };
}

export function verifyText({ directory, by, files, goodBytes }: VerifyReport): string {
  const bad = files.filter(file => file.problem !== null);
  const lines = bad.map(({ name, problem }) => `${name}: ${problem}`);
  if (files.length === 0) lines.push(`${directory} has no file of the model.`);
  const against = by === 'receipt' ? 'its receipt' : "the model's own files";
  const right = files.length - bad.length;
  const agree = right === 1 || files.length === 1 ? 'agrees' : 'agree';
  lines.push(`${right} of ${plural(files.length, 'file')} (${formatBytes(goodBytes)}) ${agree} with ${against}.`);
  return lines.join('\n');
}

export function verifyJson(report: VerifyReport): Record<string, unknown> {
  return {
    version: 1,
    ready: isReady(report),
    model: report.model,
    mirror: report.directory,
    by: report.by,
    file_count: report.files.length,
    mirrored_bytes: report.goodBytes,
    failures: report.files.filter(file => file.problem !== null).map(({ name, problem }) => ({ name, problem })),
  };
}

/** Something is there, and all of it is right. */
export function isReady({ files }: VerifyReport): boolean {
  return files.length > 0 && files.every(file => file.problem === null);
}
