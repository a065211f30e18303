/** coli chat: a conversation in the terminal, or one message per line from a pipe. */

import { ColiError } from '../../common/errors.ts';
import { formatBytes } from '../../common/units.ts';
import type { Engine } from '../../engine/api.ts';
import type { AttachFlags } from '../attach-options.ts';
import { ChatLoop, type ChatOutput, readyLine } from '../chat-loop.ts';
import { engineTalker } from '../engine-talker.ts';
import { Interrupts } from '../interrupts.ts';
import { openLineInput } from '../line-input.ts';
import { tellMemory } from '../memory-report.ts';
import { openModel, packageVersion } from '../model.ts';
import type { EngineFlags, SamplingFlags } from '../options.ts';
import { dimNote, note, outputClosed, reportError, writeAnswer, writeReasoning } from '../output.ts';
import { Progress } from '../progress.ts';
import { banner } from '../report.ts';
import type { Talker } from '../talker.ts';

export interface ChatFlags extends EngineFlags, SamplingFlags, AttachFlags {
  quiet?: boolean;
}

interface Opened {
  readonly talker: Talker;
  /** The first lines. */
  readonly banner: readonly string[];
  close(): Promise<void>;
}

export async function chat(flags: ChatFlags): Promise<number> {
  const quiet = flags.quiet === true;
  const interrupts = new Interrupts();
  interrupts.listen();
  const { talker, banner, close } = await (flags.attach === undefined
    ? openEngine(flags)
    : attach(flags.attach, flags));
  for (const line of banner) note(line, quiet);

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
    const fine = await new ChatLoop(talker, input, terminalOutput(quiet), interrupts, flags).run();
    return fine ? 0 : 1;
  } finally {
    input.close();
    await close();
  }
}

async function openEngine(flags: ChatFlags): Promise<Opened> {
  const started = performance.now();
  const engine = await openModel(flags, flags.quiet === true);
  const seconds = (performance.now() - started) / 1000;
  await requireTemplate(engine);
  const ready = readyLine(seconds, formatBytes(process.memoryUsage.rss()), engine.info.activations);
  return {
    talker: engineTalker(engine),
    banner: [...banner(packageVersion(), engine.info), ready],
    close: async () => {
      tellMemory(engine.info.plan, flags.quiet === true);
      await engine.close();
    },
  };
}

/** Waits until the server is ready. Nothing of ours ends it: another chat may use it. */
async function attach(server: string | number, { apiKey, quiet }: ChatFlags): Promise<Opened> {
  const { attachTarget, attachWarnings } = await import('../attach-target.ts');
  const { AttachedTalker } = await import('../attached.ts');
  const { attachedBanner } = await import('../attached-report.ts');
  const { whenReady } = await import('../attached-server.ts');
  const { systemClock } = await import('../clock.ts');
  const { ServerClient } = await import('../server-client.ts');
  const target = attachTarget(server, apiKey);
  for (const warning of attachWarnings(target)) note(warning);
  const client = new ServerClient(target);
  const progress = new Progress();
  const looks = whenReady(client, new AbortController().signal, systemClock);
  try {
    for (let look = await looks.next(); ; look = await looks.next()) {
      if (look.done) {
        const banner = attachedBanner(packageVersion(), client.base, look.value);
        return { talker: new AttachedTalker(client, look.value), banner, close: async () => {} };
      }
      const { label, done, total, amount, etaMs } = look.value;
      if (!quiet) progress.update(label, done, total, amount, etaMs);
    }
  } finally {
    progress.clear();
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
    reasoning: text => {
      if (!quiet) writeReasoning(text);
    },
    reply: dimNote,
    footer: text => {
      if (!quiet) dimNote(text);
    },
    error: error => reportError(error, false, true),
    closed: () => outputClosed.aborted,
  };
}
