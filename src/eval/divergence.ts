/**
 * How far a model is from the one that it was made from: KL divergence of the next-token distributions and agreement of the likeliest
 * token, on the same windows of the same text.
 */

import { RequestError } from '../common/errors.ts';
import type { Engine } from '../engine/api.ts';
import { type Interval, Mean, quantile, shareInterval } from './statistics.ts';
import { requireWindow } from './window.ts';

/** Logits of a window of both models are in memory: with a vocabulary of 150,000 that is 75 MB each. */
export const DIVERGENCE_WINDOW = 128;

export interface DivergenceReport {
  readonly tokens: number;
  /** Nats per token: sum over the vocabulary of p * (log p - log q), p of the reference. */
  readonly kl: number;
  readonly klInterval: Interval;
  readonly klMedian: number;
  readonly kl99: number;
  readonly klMax: number;
  /** Share of tokens whose likeliest continuation is the same. */
  readonly agreement: number;
  readonly agreementInterval: Interval;
  readonly ppl: number;
  readonly referencePpl: number;
  readonly window: number;
}

/** `onProgress` gets predictions done and in all. Throws RequestError when the two do not read the text alike. */
export async function evalDivergence(
  model: Engine,
  reference: Engine,
  text: string,
  window: number = DIVERGENCE_WINDOW,
  onProgress: (done: number, total: number) => void = () => {},
): Promise<DivergenceReport> {
  const ids = await sameTokens(model, reference, text);
  requireWindow(window, model, reference);
  const total = ids.length - 1;
  const kl = new Mean();
  const each: number[] = [];
  const losses = { model: new Mean(), reference: new Mean() };
  let agreeing = 0;
  for (let from = 0; from < total; from += window) {
    const targets = ids.slice(from, from + window + 1);
    const request = { ids: targets.slice(0, -1), next: targets.at(-1), nll: true, logits: true };
    const expected = await reference.score(request);
    const got = await model.score(request);
    const vocab = expected.logits!.length / request.ids.length;
    for (let row = 0; row < request.ids.length; row++) {
      const p = expected.logits!.subarray(row * vocab, (row + 1) * vocab);
      const q = got.logits!.subarray(row * vocab, (row + 1) * vocab);
      const divergence = divergenceOf(p, q);
      kl.add(divergence);
      each.push(divergence);
      if (likeliest(p) === likeliest(q)) agreeing++;
      losses.model.add(got.nll![row]);
      losses.reference.add(expected.nll![row]);
    }
    onProgress(Math.min(total, from + window), total);
  }
  return {
    tokens: total,
    kl: kl.mean,
    klInterval: kl.interval,
    klMedian: quantile(each, 0.5),
    kl99: quantile(each, 0.99),
    klMax: quantile(each, 1),
    agreement: agreeing / total,
    agreementInterval: shareInterval(agreeing, total),
    ppl: Math.exp(losses.model.mean),
    referencePpl: Math.exp(losses.reference.mean),
    window,
  };
}

async function sameTokens(model: Engine, reference: Engine, text: string): Promise<readonly number[]> {
  const [ids, expected] = await Promise.all(
    [model, reference].map(engine => engine.encode({ text }, { anyLength: true })),
  );
  const [vocab, expectedVocab] = [model.info.vocabSize, reference.info.vocabSize];
  if (vocab !== expectedVocab || ids.length !== expected.length || ids.some((id, i) => id !== expected[i])) {
    throw new RequestError('DIFFERENT_TOKENS', 'the two models do not make the same tokens of this text', {
      hint: 'give the model that this one was converted from as --reference',
      details: { vocabSize: vocab, referenceVocabSize: expectedVocab },
    });
  }
  return ids;
}

/** KL(p || q) of two rows of logits, in float64; 0 when they are the same. */
export function divergenceOf(p: Float32Array, q: Float32Array): number {
  const logSums = [p, q].map(logits => {
    let max = Number.NEGATIVE_INFINITY;
    for (const value of logits) if (value > max) max = value;
    let sum = 0;
    for (const value of logits) sum += Math.exp(value - max);
    return max + Math.log(sum);
  });
  let divergence = 0;
  for (let i = 0; i < p.length; i++) {
    const logP = p[i] - logSums[0];
    divergence += Math.exp(logP) * (logP - (q[i] - logSums[1]));
  }
  return Math.max(0, divergence);
}

function likeliest(logits: Float32Array): number {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
  return best;
}
