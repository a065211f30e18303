/** coli eval ppl: how well the model predicts a text. */

import { RequestError } from '../../common/errors.ts';
import { evalPerplexity } from '../../eval/perplexity.ts';
import { perplexityJson, perplexityText } from '../eval-report.ts';
import { Interrupts } from '../interrupts.ts';
import { openModel } from '../model.ts';
import type { EngineFlags } from '../options.ts';
import { writeJson, writeText } from '../output.ts';
import { Progress, tokenAmount } from '../progress.ts';
import { readTextFile } from '../text-file.ts';

export interface PerplexityFlags extends EngineFlags {
  text: string;
  window?: number;
  json?: boolean;
}

export async function perplexity(flags: PerplexityFlags): Promise<number> {
  new Interrupts().listen();
  const text = readTextFile(flags.text, '--text');
  const json = flags.json === true;
  const engine = await openModel(flags, json);
  try {
    const progress = new Progress();
    const report = await evalPerplexity(engine, text, flags.window, (done, total) => {
      if (!json) progress.update('scored', done, total, tokenAmount);
    }).finally(() => progress.clear());
    if (report.predictedTokens < 1) {
      throw new RequestError('TEXT_TOO_SHORT', `${flags.text} has fewer than two tokens`, {
        hint: 'give a longer text',
      });
    }
    if (json) writeJson(perplexityJson(engine.info.directory, flags.text, report));
    else writeText(perplexityText(report));
    return 0;
  } finally {
    await engine.close();
  }
}
