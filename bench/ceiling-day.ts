/**
 * Child process of `ceiling` and of test/ceiling: an engine's hard day. Long prompts, all sessions at once, conversations that go on,
 * requests that are given up, scores, many short ones; prints how high the resident set was after each, and the plan.
 * Argument: a file with a DayRequest as JSON. A budget that is too small gives {smallestBudget} alone.
 */

import { readFileSync } from 'node:fs';
import type { ColiError } from '../src/common/errors.ts';
import type { Engine, EngineOptions } from '../src/engine/api.ts';

export interface DayRequest {
  readonly options: EngineOptions;
  /** Short requests at the end. */
  readonly shortRequests: number;
}

export interface DayResult {
  readonly plan: Engine['info']['plan'];
  /** VmHWM in bytes after each part of the day. */
  readonly highest: Readonly<Record<string, number>>;
  readonly tokens: number;
}

const ANSWER_TOKENS = 12;
const SCORED_TOKENS = 64;
const GIVEN_UP_AFTER = 3;

function highWaterMark(): number {
  return Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) * 1024;
}

/** Ids that differ by `seed` from the first one on, so that nothing is reused unless it is meant to. */
function promptIds(length: number, seed: number, vocabSize: number): number[] {
  return Array.from({ length }, (_, i) => 5 + ((i * 7 + seed * (i === 0 ? 1 : 13)) % Math.min(200, vocabSize - 5)));
}

async function day({ options, shortRequests }: DayRequest): Promise<DayResult> {
  // what the command line keeps in memory beside the engine
  await import('../src/cli/program.ts');
  await import('../src/cli/commands/run.ts');
  const { openEngine } = await import('../src/engine/engine.ts');
  const engine = await openEngine(options);
  const { context, vocabSize, slots, plan } = engine.info;
  const highest: Record<string, number> = {};
  let tokens = 0;
  const note = (part: string) => {
    highest[part] = highWaterMark();
  };
  const ask = async (ids: readonly number[], maxTokens: number, givenUp = false): Promise<number[]> => {
    const request = { prompt: { ids }, maxTokens, ignoreEos: true, seed: ids[0], temperature: 1, logprobs: 4 };
    let seen = 0;
    for await (const event of engine.generate(request)) {
      if (event.type === 'token' && givenUp && ++seen === GIVEN_UP_AFTER) break;
      if (event.type !== 'end') continue;
      tokens += event.stats.prefill_tokens + event.stats.decode_tokens;
      return event.tokenIds;
    }
    return [];
  };
  note('opened');
  const long = context - ANSWER_TOKENS;
  await engine.encode({ text: 'the quick brown fox '.repeat(context / 5) });
  await ask(promptIds(long, 1, vocabSize), ANSWER_TOKENS);
  note('long prompt');
  const all = Array.from({ length: slots }, (_, i) => promptIds(long - i, 2 + i, vocabSize));
  await Promise.all(all.map(ids => ask(ids, ANSWER_TOKENS)));
  note('all sessions');
  const first = all.map(ids => ids.slice(0, Math.floor(long / 2)));
  const answers = await Promise.all(first.map(ids => ask(ids, ANSWER_TOKENS)));
  await Promise.all(first.map((ids, i) => ask([...ids, ...answers[i], 7, 8, 9], ANSWER_TOKENS)));
  await Promise.all([...first, ...all].map((ids, i) => ask(ids, ANSWER_TOKENS, i % 2 === 1)));
  note('conversations');
  await engine.score({ ids: all[0], nll: true });
  const ids = all[0].slice(0, SCORED_TOKENS);
  await engine.score({ ids, nll: true, logits: true, hidden: true, router: true });
  note('scores');
  for (let i = 0; i < shortRequests; i++) await ask(promptIds(6, 50 + i, vocabSize), 2);
  note('short requests');
  await engine.close();
  return { plan, highest, tokens };
}

const request: DayRequest = JSON.parse(readFileSync(process.argv[2], 'utf8'));
try {
  console.log(JSON.stringify(await day(request)));
} catch (error) {
  const { code, details } = error as ColiError;
  if (code !== 'RAM_TOO_SMALL') throw error;
  console.log(JSON.stringify({ smallestBudget: details['smallestBudget'] }));
}
