/** One measured run: a fresh engine, a first prompt that fills the expert cache and does not count, then the others. */

import { createHash } from 'node:crypto';
import { InternalError } from '../common/errors.ts';
import type { Engine, EngineOptions } from '../engine/api.ts';
import { openEngine } from '../engine/engine.ts';
import { usageMode } from '../engine/usage-mode.ts';
import type { Sample } from './search.ts';
import type { Metric, TunedSettings, TuneFacts } from './settings.ts';

/** What is asked when the user gives no prompts: kinds of text that route differently. */
export const PROMPTS: readonly string[] = [
  'Explain in plain words how a bicycle stays upright while it rolls.',
  'function quickSort(list) {\n  // sorts numbers in place\n',
  'Once upon a time there was a lighthouse keeper who',
  '12 * 13 = 156, 14 * 15 = 210, 16 * 17 =',
];

/** Prompt tokens of a run for answers; runs for prompts have two chunks. */
const DECODE_PROMPT_TOKENS = 32;

export interface Workload {
  readonly prompts: readonly string[];
  /** Tokens of each answer. */
  readonly tokens: number;
}

/** Measures with the user's own options, changed by some settings; null when it was interrupted. */
export async function measureRun(
  options: EngineOptions,
  facts: Pick<TuneFacts, 'chunk' | 'context'>,
  workload: Workload,
  settings: TunedSettings,
  metric: Metric,
  signal?: AbortSignal,
): Promise<Sample | null> {
  // a history that grew from run to run would favour the later ones
  const chosen = usageMode(options.usage);
  const usage = chosen === 'on' ? 'read' : chosen;
  const engine = await openEngine({ ...options, ...settings, usage });
  try {
    const tokens = metric === 'decode' ? workload.tokens : 1;
    const room = facts.context - tokens;
    const promptTokens = Math.min(room, metric === 'decode' ? DECODE_PROMPT_TOKENS : 2 * facts.chunk);
    const runs: Run[] = [];
    for (const [i, prompt] of workload.prompts.entries()) {
      const ids = await promptIds(engine, prompt, promptTokens, metric === 'prefill');
      const run = await answer(engine, ids, tokens, metric, signal);
      if (signal?.aborted) return null;
      if (i > 0) runs.push(run);
    }
    return sampleOf(runs);
  } finally {
    await engine.close();
  }
}

/** The first tokens of the text; for long ones it is said again and again. */
async function promptIds(engine: Engine, text: string, count: number, fill: boolean): Promise<number[]> {
  const ids = await engine.encode({ text });
  const wanted = fill ? count : Math.min(count, ids.length);
  return Array.from({ length: wanted }, (_, i) => ids[i % ids.length]);
}

interface Run {
  readonly tokens: number;
  readonly seconds: number;
  readonly tokenMs: readonly number[];
  readonly requests: number;
  readonly hits: number;
  readonly ids: readonly number[];
}

async function answer(
  engine: Engine,
  ids: readonly number[],
  maxTokens: number,
  metric: Metric,
  signal?: AbortSignal,
): Promise<Run> {
  const tokenMs: number[] = [];
  let last = 0;
  for await (const event of engine.generate({ prompt: { ids }, maxTokens, temperature: 0, ignoreEos: true }, signal)) {
    const now = performance.now();
    if (event.type === 'token') {
      // the first comes with the prompt
      if (last > 0) tokenMs.push(now - last);
      last = now;
    }
    if (event.type !== 'end') continue;
    const { prefill_tokens, prefill_s, decode_tokens, decode_s, expert_requests, expert_hits } = event.stats;
    const prefill = metric === 'prefill';
    return {
      // the first token comes with the prompt
      tokens: prefill ? prefill_tokens : decode_tokens - 1,
      seconds: prefill ? prefill_s : decode_s,
      tokenMs: prefill ? [(prefill_s * 1000) / prefill_tokens] : tokenMs,
      requests: expert_requests,
      hits: expert_hits,
      ids: event.tokenIds,
    };
  }
  throw new InternalError('ANSWER_CUT', 'an answer stopped without its end');
}

function sampleOf(runs: readonly Run[]): Sample {
  const sum = (pick: (run: Run) => number) => runs.reduce((total, run) => total + pick(run), 0);
  const times = runs.flatMap(run => run.tokenMs).sort((a, b) => a - b);
  const digest = createHash('sha256').update(JSON.stringify(runs.map(run => run.ids)));
  return {
    tokensPerSecond: sum(run => run.tokens) / sum(run => run.seconds),
    p99Ms: times[Math.min(times.length - 1, Math.floor(times.length * 0.99))] ?? 0,
    hitRate:
      sum(run => run.hits) /
      Math.max(
        1,
        sum(run => run.requests),
      ),
    digest: digest.digest('hex').slice(0, 16),
  };
}
