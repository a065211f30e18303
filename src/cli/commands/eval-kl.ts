/** coli eval kl: how far a model is from the one that it was made from. */

import { RequestError } from '../../common/errors.ts';
import { automaticBudget, memoryFacts } from '../../engine/machine.ts';
import { DIVERGENCE_WINDOW, evalDivergence } from '../../eval/divergence.ts';
import { divergenceJson, divergenceText } from '../eval-report.ts';
import { Interrupts } from '../interrupts.ts';
import { openModel } from '../model.ts';
import type { EngineFlags } from '../options.ts';
import { writeJson, writeText } from '../output.ts';
import { Progress, tokenAmount } from '../progress.ts';
import { readTextFile } from '../text-file.ts';

export interface DivergenceFlags extends EngineFlags {
  reference: string;
  text: string;
  window?: number;
  json?: boolean;
}

export async function divergence(flags: DivergenceFlags): Promise<number> {
  new Interrupts().listen();
  const text = readTextFile(flags.text, '--text');
  const json = flags.json === true;
  // both are open at once: each gets half
  const whole = typeof flags.ram === 'number' ? flags.ram : automaticBudget(memoryFacts()).bytes;
  const half = { ...flags, ram: Math.floor(whole / 2) };
  const window = flags.window ?? DIVERGENCE_WINDOW;
  const extras = { scoredTokens: window };
  const reference = await openModel({ ...half, model: flags.reference }, json, extras);
  try {
    const model = await openModel(half, json, extras);
    try {
      const progress = new Progress();
      const report = await evalDivergence(model, reference, text, window, (done, total) => {
        if (!json) progress.update('compared', done, total, tokenAmount);
      }).finally(() => progress.clear());
      if (report.tokens < 1) {
        throw new RequestError('TEXT_TOO_SHORT', `${flags.text} has fewer than two tokens`, {
          hint: 'give a longer text',
        });
      }
      const models = { model: model.info, reference: reference.info };
      if (json) writeJson(divergenceJson(models, flags.text, report));
      else writeText(divergenceText(models, report));
      return 0;
    } finally {
      await model.close();
    }
  } finally {
    await reference.close();
  }
}
