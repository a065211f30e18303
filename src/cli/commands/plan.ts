/** coli plan: what would be where, how fast that can be, and what limits it. */

import { writeFileSync } from 'node:fs';
import { StorageError } from '../../common/errors.ts';
import type { EngineOptions } from '../../engine/api.ts';
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

async function serverNeeds(flags: PlanFlags): Promise<Pick<EngineOptions, 'reserveBytes' | 'constraints'>> {
  if (!flags.serve) return {};
  const { SERVER_RESERVE_BYTES } = await import('../../server/overhead.ts');
  return { reserveBytes: SERVER_RESERVE_BYTES, constraints: true };
}

function write(path: string, plan: object): void {
  try {
    writeFileSync(path, `${JSON.stringify(plan, null, 1)}\n`);
  } catch (error) {
    throw new StorageError('OUTPUT_FAILED', `the plan cannot be written: ${(error as Error).message}`, {
      hint: 'give another file with --out',
      cause: error,
    });
  }
}
