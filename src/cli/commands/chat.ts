/** coli chat: a conversation in the terminal, or one message per line from a pipe. */

import { ColiError } from '../../common/errors.ts';
import { formatBytes } from '../../common/units.ts';
import type { Engine } from '../../engine/api.ts';
import { ChatLoop, type ChatOutput, readyLine } from '../chat-loop.ts';
import { Interrupts } from '../interrupts.ts';
import { openLineInput } from '../line-input.ts';
import { openModel, packageVersion } from '../model.ts';
import type { EngineFlags, SamplingFlags } from '../options.ts';
import { dimNote, note, outputClosed, reportError, writeAnswer } from '../output.ts';
import { banner } from '../report.ts';

export interface ChatFlags extends EngineFlags, SamplingFlags {
  quiet?: boolean;
}

export async function chat(flags: ChatFlags): Promise<number> {
  const quiet = flags.quiet === true;
  const interrupts = new Interrupts();
  interrupts.listen();
  const started = performance.now();
  const engine = await openModel(flags, quiet);
  const seconds = (performance.now() - started) / 1000;
  await requireTemplate(engine);
  for (const line of banner(packageVersion(), engine.info)) note(line, quiet);
  note(readyLine(seconds, formatBytes(process.memoryUsage.rss()), engine.info.activations), quiet);

  const input = openLineInput(process.stdin, process.stdout, () => interrupts.press());
  if (input.interactive) {
    interrupts.atPrompt = { drop: () => input.dropTyped(), warn: () => input.say('Ctrl-C again leaves.') };
  }
  interrupts.beforeLeaving = () => {
    if (input.interactive && !input.prompting) process.stderr.write('\n');
    input.close();
  };
  outputClosed.addEventListener('abort', () => input.close());
  try {
    const fine = await new ChatLoop(engine, input, terminalOutput(quiet), interrupts, flags).run();
    return fine ? 0 : 1;
  } finally {
    input.close();
    await engine.close();
  }
}

/** A model without a template can hold no conversation: said at once, not after the first message. */
async function requireTemplate(engine: Engine): Promise<void> {
  try {
    await engine.encode({ messages: [{ role: 'user', content: 'Hello' }] });
  } catch (error) {
    // Other trouble may come from this message: a template may ask for a system message first.
    if (!(error instanceof ColiError) || error.code !== 'NO_CHAT_TEMPLATE') return;
    await engine.close();
    throw error;
  }
}

function terminalOutput(quiet: boolean): ChatOutput {
  return {
    answer: writeAnswer,
    reply: dimNote,
    footer: text => {
      if (!quiet) dimNote(text);
    },
    error: error => reportError(error, false, true),
    closed: () => outputClosed.aborted,
  };
}
