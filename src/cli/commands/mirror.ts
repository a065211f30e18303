/** coli mirror: copies of a model's files on another drive, planned, made and checked. */

import { ColiError } from '../../common/errors.ts';
import { GIB } from '../../common/units.ts';
import { readModel } from '../../engine/model-files.ts';
import { type MirrorOptions, planMirror } from '../../mirror/plan.ts';
import { stageMirror } from '../../mirror/stage.ts';
import type { MirrorProgress, MirrorRun } from '../../mirror/types.ts';
import { verifyMirror } from '../../mirror/verify.ts';
import { EXIT_INTERRUPTED, Interrupts } from '../interrupts.ts';
import {
  isReady,
  mirrorPlanJson,
  mirrorPlanText,
  stageJson,
  stageText,
  verifyJson,
  verifyText,
} from '../mirror-report.ts';
import { modelDirectory, packageVersion } from '../model.ts';
import { reportError, writeJson, writeText } from '../output.ts';
import { byteAmount, Progress } from '../progress.ts';

const DEFAULT_RESERVE_BYTES = 10 * GIB;
const PHASES = { copy: 'copying', check: 'reading back', compare: 'comparing' } as const;

export interface MirrorFlags {
  budget?: number;
  reserve?: number;
  usage?: string;
  json?: boolean;
}

/** Writes nothing. */
export async function mirrorPlan(model: string, directory: string, flags: MirrorFlags): Promise<number> {
  const plan = planMirror(optionsOf(model, directory, flags));
  if (flags.json) writeJson(mirrorPlanJson(plan));
  else writeText(mirrorPlanText(plan));
  return 0;
}

/** Exit code 1: something is in the way and was left there. */
export async function mirrorStage(model: string, directory: string, flags: MirrorFlags): Promise<number> {
  return interruptible(flags, async run => {
    const options = optionsOf(model, directory, flags);
    if (!flags.json) writeText(mirrorPlanText(planMirror(options)));
    const report = await stageMirror({ ...options, ...run, writer: `colibri ${packageVersion()}` });
    run.progress.clear();
    if (flags.json) writeJson(stageJson(report));
    else writeText(stageText(report));
    return report.foreign.length > 0 ? 1 : 0;
  });
}

/** Exit code 1: a file differs, or there is none. */
export async function mirrorVerify(model: string, directory: string, flags: MirrorFlags): Promise<number> {
  return interruptible(flags, async run => {
    const report = await verifyMirror({ files: openFiles(model, flags), directory, ...run });
    run.progress.clear();
    if (flags.json) writeJson(verifyJson(report));
    else writeText(verifyText(report));
    return isReady(report) ? 0 : 1;
  });
}

function optionsOf(model: string, directory: string, flags: MirrorFlags): MirrorOptions {
  const { budget: budgetBytes, reserve: reserveBytes = DEFAULT_RESERVE_BYTES, usage } = flags;
  return { files: openFiles(model, flags), directory, budgetBytes, reserveBytes, usage };
}

function openFiles(model: string, { json }: MirrorFlags) {
  return readModel({ model: modelDirectory({ model }, json === true) });
}

async function interruptible(
  { json }: MirrorFlags,
  work: (run: MirrorRun & { progress: Progress }) => Promise<number>,
): Promise<number> {
  const interrupts = new Interrupts();
  interrupts.listen();
  const progress = new Progress();
  const onProgress = ({ phase, file, doneBytes, totalBytes }: MirrorProgress): void => {
    if (!json) progress.update(`${PHASES[phase]} ${file}:`, doneBytes, totalBytes, byteAmount);
  };
  try {
    return await interrupts.during(signal => work({ signal, onProgress, progress })).finally(() => progress.clear());
  } catch (error) {
    if (!(error instanceof ColiError) || error.code !== 'MIRROR_STOPPED') throw error;
    reportError(error, json === true);
    return EXIT_INTERRUPTED;
  }
}
