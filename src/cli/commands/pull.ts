/** coli pull: fetches a model of the hub; interrupted, the same command continues. */

import { HubError } from '../../common/errors.ts';
import { nameText, parseRepoName } from '../../hub/names.ts';
import { pullModel } from '../../hub/pull.ts';
import { hubSettings } from '../../hub/settings.ts';
import { PullSpeed, pullDoneText, pullJson, pullPlanText } from '../hub-report.ts';
import { EXIT_INTERRUPTED, Interrupts } from '../interrupts.ts';
import { reportError, writeJson, writeText } from '../output.ts';
import { Progress } from '../progress.ts';

export interface PullFlags {
  include?: string[];
  dest?: string;
  json?: boolean;
}

export async function pull(text: string, flags: PullFlags): Promise<number> {
  const interrupts = new Interrupts();
  interrupts.listen();
  const name = parseRepoName(text);
  const json = flags.json === true;
  const progress = new Progress();
  const speed = new PullSpeed();
  try {
    const report = await interrupts.during(signal =>
      pullModel({
        name,
        settings: hubSettings(),
        include: flags.include,
        destination: flags.dest,
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
    else writeText(pullDoneText(report, flags.dest ?? nameText(name)));
    return 0;
  } catch (error) {
    if (!(error instanceof HubError) || error.code !== 'HUB_STOPPED') throw error;
    reportError(error, json);
    return EXIT_INTERRUPTED;
  }
}
