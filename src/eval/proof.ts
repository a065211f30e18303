/** Measures an engine against an evaluation folder: perplexity per domain, greedy continuations token by token. */

import type { Engine } from '../engine/api.ts';
import { type GoldenDomain, type GoldenSample, readGoldenText } from './golden.ts';
import { greedyTokens, leadingMatches } from './greedy.ts';
import { evalPerplexity } from './perplexity.ts';

export interface DomainResult {
  readonly name: string;
  readonly predictedTokens: number;
  /** Token count and first ids equal the reference's. */
  readonly sameTokens: boolean;
  readonly ppl: number;
  readonly nll: number;
  readonly referencePpl: number;
  /** 100 * (ppl / referencePpl - 1) */
  readonly differencePercent: number;
}

/** `folder` has the domain's text; `onProgress` gets the predictions done. */
export async function measureDomain(
  engine: Engine,
  domain: GoldenDomain,
  folder: string,
  window: number,
  onProgress: (done: number) => void = () => {},
): Promise<DomainResult> {
  const text = readGoldenText(folder, domain.name);
  const ids = await engine.encode({ text }, { anyLength: true });
  const report = await evalPerplexity(engine, text, window, onProgress);
  return {
    name: domain.name,
    predictedTokens: report.predictedTokens,
    sameTokens: report.tokens === domain.tokens && domain.first_ids.every((id, i) => id === ids[i]),
    ppl: report.ppl,
    nll: report.nll,
    referencePpl: domain.ppl,
    differencePercent: percent(report.ppl, domain.ppl),
  };
}

export interface GroupResult {
  readonly name: string;
  readonly domains: number;
  readonly predictedTokens: number;
  readonly ppl: number;
  readonly referencePpl: number;
  readonly differencePercent: number;
}

/** Domains whose name starts with `chat_`, and all others; every token weighs the same. */
export function groupDomains(results: readonly DomainResult[]): GroupResult[] {
  const chat = (result: DomainResult) => result.name.startsWith('chat_');
  const groups = [
    { name: 'chat', members: results.filter(chat) },
    { name: 'plain', members: results.filter(result => !chat(result)) },
  ];
  return groups
    .filter(({ members }) => members.length > 0)
    .map(({ name, members }) => {
      const predictedTokens = members.reduce((sum, member) => sum + member.predictedTokens, 0);
      const mean = (nll: (member: DomainResult) => number) =>
        Math.exp(members.reduce((sum, member) => sum + nll(member) * member.predictedTokens, 0) / predictedTokens);
      const ppl = mean(member => member.nll);
      const referencePpl = mean(member => Math.log(member.referencePpl));
      return {
        name,
        domains: members.length,
        predictedTokens,
        ppl,
        referencePpl,
        differencePercent: percent(ppl, referencePpl),
      };
    });
}

export interface SampleResult {
  readonly prompt: string;
  readonly tokens: number;
  /** Leading greedy tokens that equal the reference's. */
  readonly matching: number;
  /** The answer agrees up to and including its stop id; with no stop id, all tokens do. */
  readonly sameAnswer: boolean;
  /** Where the first different token stands; null when all agree. */
  readonly difference: SampleDifference | null;
  /** Largest difference of a logit that the reference reports, the reference's tokens being fed. */
  readonly maxLogitDifference: number;
}

export interface SampleDifference {
  readonly position: number;
  readonly expected: number;
  readonly got: number | null;
  /** How far the reference's best logit was above its second. */
  readonly referenceMargin: number;
}

export async function checkSample(engine: Engine, sample: GoldenSample): Promise<SampleResult> {
  const { greedy_ids: expected, top5 } = sample;
  const got = await greedyTokens(engine, sample.prompt_ids, expected.length);
  const matching = leadingMatches(got, expected);
  return {
    prompt: sample.prompt,
    tokens: expected.length,
    matching,
    sameAnswer: matching > (sample.stop_at ?? expected.length - 1),
    difference:
      matching === expected.length
        ? null
        : {
            position: matching,
            expected: expected[matching],
            got: got[matching] ?? null,
            referenceMargin: top5[matching][0][1] - top5[matching][1][1],
          },
    maxLogitDifference: await largestLogitDifference(engine, sample),
  };
}

async function largestLogitDifference(engine: Engine, sample: GoldenSample): Promise<number> {
  const { logits } = await engine.score({
    ids: [...sample.prompt_ids, ...sample.greedy_ids.slice(0, -1)],
    logits: true,
  });
  let max = 0;
  for (const [step, best] of sample.top5.entries()) {
    const row = (sample.prompt_ids.length - 1 + step) * engine.info.vocabSize;
    for (const [id, logit] of best) max = Math.max(max, Math.abs(logits![row + id] - logit));
  }
  return max;
}

function percent(value: number, reference: number): number {
  return 100 * (value / reference - 1);
}
