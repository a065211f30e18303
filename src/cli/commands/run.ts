/** coli run: one prompt, one answer. */

import { UsageError } from '../../common/errors.ts';
import type { Engine, Prompt } from '../../engine/api.ts';
import { type Profile, profileOf } from '../../telemetry/profile.ts';
import { streamAnswer } from '../answer.ts';
import { EXIT_INTERRUPTED, Interrupts } from '../interrupts.ts';
import { memoryJson, tellMemory } from '../memory-report.ts';
import { openModel, runNotes } from '../model.ts';
import { type EngineFlags, generateOptions, type SamplingFlags } from '../options.ts';
import { dimNote, outputClosed, writeAnswer, writeJson, writeReasoning } from '../output.ts';
import { placementJson, placementText } from '../placement-report.ts';
import { profileReport } from '../profile-report.ts';
import { Progress } from '../progress.ts';
import { readPrompt } from '../prompt-input.ts';
import { answerFooter, answerJson, seedFigure } from '../report.ts';
import { isTerminal } from '../terminal.ts';

export interface RunFlags extends EngineFlags, SamplingFlags {
  raw?: boolean;
  json?: boolean;
  quiet?: boolean;
  profile?: boolean;
}

export async function run(words: readonly string[], flags: RunFlags): Promise<number> {
  const interrupts = new Interrupts();
  interrupts.listen();
  const prompt = await promptOf(words, flags);
  const quiet = flags.quiet === true || flags.json === true;
  const engine = await openModel(flags, quiet);
  try {
    const request = { prompt, ...generateOptions(flags) };
    let lastChar = '\n';
    const thought = new Thought(quiet);
    const onText = (text: string) => {
      if (text === '') return;
      thought.end();
      lastChar = text.slice(-1);
      if (!flags.json) writeAnswer(text);
    };
    const answer = await interrupts.during(signal =>
      streamAnswer(engine, request, AbortSignal.any([signal, outputClosed]), {
        onText,
        onReasoning: text => thought.add(text),
        progress: quiet ? null : new Progress(),
      }),
    );
    thought.end();
    const interrupted = answer.end.finishReason === 'cancelled' && !outputClosed.aborted;
    const { plan } = engine.info;
    const profile = flags.profile ? await profileOfAnswer(engine, interrupted || outputClosed.aborted) : null;
    if (flags.json) {
      const json = answerJson(engine.info.directory, answer, runNotes(flags, engine.info));
      writeJson({
        ...json,
        memory: memoryJson(plan),
        placement: placementJson(engine.info),
        ...(profile && { profile }),
      });
    }
    if (!flags.json) {
      const ended = lastChar === '\n';
      if (!ended) writeAnswer('\n');
      if (!quiet && !outputClosed.aborted) {
        // The terminal has written ^C where the cursor was.
        if (interrupted && (ended || !isTerminal(process.stdout)) && isTerminal(process.stderr)) dimNote('');
        dimNote(`[${answerFooter(answer, engine.info.context)}${seedFigure(answer.start.sampling)}]`);
      }
      tellMemory(plan, quiet);
      if (profile) dimNote(`${profileReport(profile)}\n\n${placementText(engine.info)}`);
    }
    return interrupted ? EXIT_INTERRUPTED : 0;
  } finally {
    await engine.close();
  }
}

/** What the answer took; and, unless the user is leaving, what the machine would have allowed. */
async function profileOfAnswer(engine: Engine, isLeaving: boolean): Promise<Profile> {
  const limits = isLeaving ? null : await engine.measureLimits();
  return profileOf(engine.telemetry.lastRequest(), limits);
}

/** Reasoning on its way out; what follows has a line of its own. */
class Thought {
  readonly #quiet: boolean;
  #lineIsOpen = false;

  constructor(quiet: boolean) {
    this.#quiet = quiet;
  }

  add(text: string): void {
    if (this.#quiet || text === '') return;
    writeReasoning(text);
    this.#lineIsOpen = !text.endsWith('\n');
  }

  end(): void {
    if (this.#lineIsOpen) writeReasoning('\n');
    this.#lineIsOpen = false;
  }
}

async function promptOf(words: readonly string[], flags: RunFlags): Promise<Prompt> {
  if (flags.raw && flags.system !== undefined) {
    throw new UsageError('BAD_FLAG', '--raw continues the text as it is, so it cannot have a --system message', {
      hint: 'leave one of the two out',
    });
  }
  const text = await readPrompt(words, flags.raw === true, process.stdin, flags.quiet || flags.json);
  if (flags.raw) return { text };
  const system = flags.system === undefined ? [] : [{ role: 'system', content: flags.system }];
  return { messages: [...system, { role: 'user', content: text }] };
}
