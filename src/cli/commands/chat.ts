/** coli chat: a conversation in the terminal, or one message per line from a pipe. */

import { formatBytes } from '../../common/units.ts';
import { ChatLoop, type ChatOutput, readyLine } from '../chat-loop.ts';
import { Interrupts } from '../interrupts.ts';
import { openLineInput } from '../line-input.ts';
import { openModel, packageVersion } from '../model.ts';
import type { EngineFlags, SamplingFlags } from '../options.ts';
import { note, outputClosed, reportError, writeAnswer } from '../output.ts';
import { banner } from '../report.ts';
import { escapeControls, styled } from '../terminal.ts';

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
  for (const line of banner(packageVersion(), engine.info)) note(line, quiet);
  note(readyLine(seconds, formatBytes(process.memoryUsage.rss())), quiet);

  const input = openLineInput(process.stdin, process.stdout, () => interrupts.press());
  if (input.interactive) {
    interrupts.atPrompt = { drop: () => input.dropTyped(), warn: () => input.say('Ctrl-C again leaves.') };
  }
  interrupts.beforeLeaving = () => input.close();
  outputClosed.addEventListener('abort', () => input.close());
  try {
    const fine = await new ChatLoop(engine, input, terminalOutput(quiet), interrupts, flags).run();
    return fine ? 0 : 1;
  } finally {
    input.close();
    await engine.close();
  }
}

function terminalOutput(quiet: boolean): ChatOutput {
  const dim = (text: string) => {
    for (const line of text.split('\n')) {
      process.stderr.write(`${styled('dim', escapeControls(line), process.stderr)}\n`);
    }
  };
  return {
    answer: writeAnswer,
    reply: dim,
    footer: text => {
      if (!quiet) dim(text);
    },
    error: error => reportError(error, false),
    closed: () => outputClosed.aborted,
  };
}
