/** coli plan: what would be where, how fast that can be, and what limits it. */

import { statSync } from 'node:fs';
import { StorageError, UsageError } from '../../common/errors.ts';
import { replaceFile } from '../../common/whole-file.ts';
import type { EngineOptions } from '../../engine/api.ts';
import { MAX_PLAN_BYTES } from '../../engine/plan-options.ts';
import { readJsonObject } from '../../formats/json.ts';
import { flagNotes, modelDirectory, packageVersion, withTuned } from '../model.ts';
import type { EngineFlags } from '../options.ts';
import { writeJson, writeText } from '../output.ts';
import { planText } from '../plan-report.ts';
import { Progress } from '../progress.ts';

export interface PlanFlags extends EngineFlags {
  json?: boolean;
  /** True: anew; false: not at all. */
  measure?: boolean;
  promptTokens?: number;
  serve?: boolean;
  out?: string;
}

/** Reads headers and, unless stored or declined, measures for about a second; no weights are loaded. */
export async function plan(flags: PlanFlags): Promise<number> {
  const model = modelDirectory(flags, flags.json === true);
  const { makePlanFile } = await import('../../engine/plan-document.ts');
  const progress = new Progress();
  const needs = await serverNeeds(flags);
  const { value: made, notes } = await withTuned(flags, model, options =>
    makePlanFile({
      options: { ...options, ...needs },
      colibri: packageVersion(),
      measure: flags.measure === undefined ? 'short' : flags.measure ? 'fresh' : 'stored',
      promptTokens: flags.promptTokens,
      onProgress: (what, done, total) => progress.update(`measuring the ${what}:`, done, total, share),
    }).finally(() => progress.clear()),
  );
  const told = { ...made, notes: [...flagNotes(flags), ...notes, ...made.notes] };
  if (flags.out !== undefined) write(flags.out, told);
  if (flags.json) writeJson(told);
  else writeText(planText(told, flags.out));
  return 0;
}

const share = (done: number, total: number) => `${Math.round((100 * done) / total)} %`;

/** An empty file, and a plan of any version or model, may be replaced. */
function isOtherFile(path: string): boolean {
  try {
    const stat = statSync(path);
    // a pipe or a device is not replaced
    if (!stat.isFile()) return true;
    if (stat.size === 0) return false;
    const found = readJsonObject(path, MAX_PLAN_BYTES);
    return !('colibri' in found && 'memory' in found && 'model' in found);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code !== 'ENOENT';
  }
}

async function serverNeeds(flags: PlanFlags): Promise<Pick<EngineOptions, 'reserveBytes' | 'constraints'>> {
  if (!flags.serve) return {};
  const { SERVER_RESERVE_BYTES } = await import('../../server/overhead.ts');
  return { reserveBytes: SERVER_RESERVE_BYTES, constraints: true };
}

/** In the place of an older plan, never of anything else. */
function write(path: string, plan: object): void {
  if (isOtherFile(path)) {
    throw new UsageError('BAD_FLAG', `--out ${path} exists and is no plan`, {
      hint: 'give a new file, or remove this one first',
    });
  }
  try {
    replaceFile(path, `${JSON.stringify(plan, null, 1)}\n`);
  } catch (error) {
    throw new StorageError('OUTPUT_FAILED', `the plan cannot be written: ${(error as Error).message}`, {
      hint: 'give another file with --out',
      cause: error,
    });
  }
}
