/** coli eval choice: multiple-choice questions by log-likelihood. */

import { RequestError } from '../../common/errors.ts';
import { evalChoices, parseQuestions } from '../../eval/choices.ts';
import { choicesJson, choicesText } from '../eval-report.ts';
import { Interrupts } from '../interrupts.ts';
import { openModel } from '../model.ts';
import type { EngineFlags } from '../options.ts';
import { writeJson, writeText } from '../output.ts';
import { Progress } from '../progress.ts';
import { readTextFile } from '../text-file.ts';

export interface ChoiceFlags extends EngineFlags {
  task: string;
  limit?: number;
  json?: boolean;
}

export async function choice(flags: ChoiceFlags): Promise<number> {
  new Interrupts().listen();
  const questions = parseQuestions(readTextFile(flags.task, '--task'), flags.task).slice(0, flags.limit);
  if (questions.length === 0) {
    throw new RequestError('NO_QUESTIONS', `${flags.task} has no questions`, { hint: 'check --task' });
  }
  const json = flags.json === true;
  const engine = await openModel(flags, json);
  try {
    const progress = new Progress();
    const report = await evalChoices(engine, questions, (done, total) => {
      if (!json) progress.update('answered', done, total, count => `${count} questions`);
    }).finally(() => progress.clear());
    if (json) writeJson(choicesJson(engine.info, flags.task, report));
    else writeText(choicesText(engine.info, report));
    return 0;
  } finally {
    await engine.close();
  }
}
