/** coli rm: takes a model out of the cache, after a question. */

import readline from 'node:readline/promises';
import { UsageError } from '../../common/errors.ts';
import { formatBytes } from '../../common/units.ts';
import { parseRepoName } from '../../hub/names.ts';
import { planRemoval, removeModel } from '../../hub/remove.ts';
import { hubCache } from '../../hub/settings.ts';
import { removalText } from '../hub-report.ts';
import { writeText } from '../output.ts';
import { escapeControls, isTerminal } from '../terminal.ts';

export async function rm(text: string, flags: { yes?: boolean }): Promise<number> {
  const name = parseRepoName(text);
  const cache = hubCache();
  const planned = planRemoval(cache, name);
  if (!flags.yes && !(await confirm(`Remove ${removalText(planned)}?`))) {
    writeText('Nothing was removed.');
    return 1;
  }
  const removed = await removeModel(cache, name);
  writeText(`Removed ${removalText(removed)}: ${formatBytes(removed.bytes)} freed.`);
  return 0;
}

async function confirm(question: string): Promise<boolean> {
  if (!isTerminal(process.stdin) || !isTerminal(process.stderr)) {
    throw new UsageError('NOT_CONFIRMED', 'coli rm asks before it removes, and there is no terminal to ask on', {
      hint: 'say it with --yes',
    });
  }
  const editor = readline.createInterface({ input: process.stdin, output: process.stderr });
  // Ctrl-C and Ctrl-D are a no, and leave the cursor behind the question
  const ended = new Promise<string>(resolve => editor.once('close', () => resolve('\n')));
  try {
    const answer = await Promise.race([editor.question(escapeControls(`${question} [y/N] `)), ended]);
    if (answer === '\n') process.stderr.write(answer);
    return /^y(es)?$/i.test(answer.trim());
  } finally {
    editor.close();
  }
}
