/** coli pull: fetches a model of the hub; interrupted, the same command continues. */

import { ConfigError, HubError, UsageError } from '../../common/errors.ts';
import { nameText, parseRepoName } from '../../hub/names.ts';
import { type PullOptions, planPull, pullModel } from '../../hub/pull.ts';
import { hubSettings } from '../../hub/settings.ts';
import { familyOf } from '../../models/registry.ts';
import { PullSpeed, pullDoneText, pullJson, pullPlanJson, pullPlanText } from '../hub-report.ts';
import { EXIT_INTERRUPTED, Interrupts } from '../interrupts.ts';
import { reportError, writeJson, writeText } from '../output.ts';
import { Progress } from '../progress.ts';
import { type ConvertFlags, convertFromHub } from './convert.ts';

export interface PullFlags extends ConvertFlags {
  dest?: string;
  convert?: boolean;
}

/** `destination`: of a conversion; plain files go to the directory of --dest. */
export async function pull(text: string, destination: string | undefined, flags: PullFlags): Promise<number> {
  const name = parseRepoName(text);
  if (flags.convert) return convertFromHub(name, conversionTarget(destination, flags), flags);
  refuseConversionFlags(destination, flags);
  const interrupts = new Interrupts();
  interrupts.listen();
  const json = flags.json === true;
  const progress = new Progress();
  const speed = new PullSpeed();
  let cannotRun: string | null = null;
  const options: PullOptions = {
    name,
    settings: hubSettings(),
    include: flags.include,
    destination: flags.dest,
    checkConfig: config => {
      const error = unknownFamily(name.id, config);
      if (error && !flags.include) throw error;
      cannotRun = error?.message ?? null;
    },
  };
  try {
    if (flags.dryRun) {
      const plan = await interrupts.during(signal => planPull({ ...options, signal }));
      if (json) writeJson({ plan: pullPlanJson(plan) });
      else writeText(`${pullPlanText(plan)}\nNothing was fetched: this was a dry run.`);
      return 0;
    }
    const report = await interrupts.during(signal =>
      pullModel({
        ...options,
        signal,
        onPlan: plan => {
          if (!json) writeText(pullPlanText(plan));
        },
        onProgress: step => {
          if (json) return;
          const { amount, etaMs } = speed.amount(step);
          const label = step.fetchedBytes === 0 ? 'checking' : 'fetching';
          progress.update(`${label} ${name.id}:`, step.doneBytes, step.totalBytes, amount, etaMs);
        },
      }).finally(() => progress.clear()),
    );
    if (json) writeJson(pullJson(report));
    else writeText(pullDoneText(report, flags.dest ?? nameText(name), cannotRun));
    return 0;
  } catch (error) {
    if (!(error instanceof HubError) || error.code !== 'HUB_STOPPED') throw error;
    reportError(error, json);
    return EXIT_INTERRUPTED;
  }
}

/** Why the model cannot be run, with the families that can; null when it can. */
function unknownFamily(id: string, config: Readonly<Record<string, unknown>>): ConfigError | null {
  try {
    familyOf(config);
    return null;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return new ConfigError(error.code, `${id} cannot be run: ${error.message}`, {
      hint: 'choose a model of a known family; with --include the files are fetched all the same',
      details: error.details,
    });
  }
}

function conversionTarget(destination: string | undefined, { dest }: PullFlags): string {
  if (destination !== undefined && dest === undefined) return destination;
  if (destination === undefined && dest !== undefined) return dest;
  throw new UsageError('BAD_USAGE', `--convert needs one destination, not ${dest === undefined ? 'none' : 'two'}`, {
    hint: 'coli pull --convert ORG/NAME DIR',
  });
}

/** What would do nothing is an error. */
function refuseConversionFlags(destination: string | undefined, flags: PullFlags): void {
  const given = [
    ...(destination === undefined ? [] : ['a destination']),
    ...(['experts', 'dense'] as const).filter(flag => flags[flag] !== undefined).map(flag => `--${flag}`),
  ];
  if (given.length === 0) return;
  throw new UsageError('BAD_USAGE', `${given.join(' and ')} without --convert`, {
    hint: 'add --convert, or give the directory for plain files with --dest',
  });
}
