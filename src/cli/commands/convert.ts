/** coli convert: shows the plan, then writes the container; interrupted, the same command continues. */

import { ConvertError } from '../../common/errors.ts';
import { convertCheckpoint } from '../../convert/convert.ts';
import { planConversion } from '../../convert/plan.ts';
import type { DenseEncoding, ExpertEncoding } from '../../convert/types.ts';
import { doneText, planJson, planText, reportJson } from '../convert-report.ts';
import { EXIT_INTERRUPTED, Interrupts } from '../interrupts.ts';
import { packageVersion } from '../model.ts';
import { reportError, writeJson, writeText } from '../output.ts';
import { byteAmount, Progress } from '../progress.ts';

export interface ConvertFlags {
  experts?: ExpertEncoding;
  dense?: DenseEncoding;
  dryRun?: boolean;
  json?: boolean;
}

export async function convert(source: string, destination: string, flags: ConvertFlags): Promise<number> {
  const interrupts = new Interrupts();
  interrupts.listen();
  const options = {
    source,
    destination,
    experts: flags.experts ?? 'q4g64',
    dense: flags.dense ?? 'q8',
    writer: `colibri ${packageVersion()}`,
  };
  const json = flags.json === true;
  const plan = planConversion(options);
  if (!json) writeText(planText(plan));
  if (flags.dryRun) {
    if (json) writeJson({ plan: planJson(plan) });
    else writeText('Nothing was written: this was a dry run.');
    return 0;
  }
  const progress = new Progress();
  try {
    const report = await interrupts.during(signal =>
      convertCheckpoint({
        ...options,
        signal,
        onProgress: ({ phase, shard, doneBytes, totalBytes }) => {
          if (!json) progress.update(`${phase} ${shard}:`, doneBytes, totalBytes, byteAmount);
        },
      }).finally(() => progress.clear()),
    );
    if (json) writeJson(reportJson(report));
    else writeText(doneText(report));
    return 0;
  } catch (error) {
    if (!(error instanceof ConvertError) || error.code !== 'CONVERT_STOPPED') throw error;
    reportError(error, json);
    return EXIT_INTERRUPTED;
  }
}
