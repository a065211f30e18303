/**
 * From logits to the next token. The order is fixed:
 *
 *   1. logits must be finite; log-probabilities are those of the logits as they came, whatever the next steps do
 *   2. repetition penalty, once per distinct token of prompt and answer (logit > 0: divided, else multiplied)
 *   3. presence and frequency penalties, tokens of the answer only
 *   4. logit bias; the logits must still be finite; tokens that a constraint forbids then get minus infinity
 *   5. temperature 0 or top_k 1: the largest logit, ties to the lower id, no random number drawn
 *   6. temperature: weight = e^((logit - largest) / temperature); tokens of weight 0 are out
 *   7. top_k: the k largest logits, ties to the lower id
 *   8. top_p: the fewest largest whose weights reach top_p of the weights left by top_k
 *   9. min_p: those with at least min_p times the largest weight
 *  10. one random number per token picks from the weights
 *
 * Weights are added in float64: largest logit first after top_k, and for what top_p keeps; else in order of id.
 * Nothing here depends on the machine: float32 and float64 basic arithmetic, our own exponential and generator.
 *
 * Loops over the vocabulary are functions of typed arrays and call none that returns a fraction. A method has to be compiled
 * anew when somebody gives the object a property, and until the best compiler is done each result of a call is garbage.
 */

import { NumericError, RequestError } from '../common/errors.ts';
import { EXP_MIN } from '../kernels/reference/math.ts';
import { log64 } from '../kernels/scalar.ts';
import type { EffectiveSampling, TokenLogprobs } from './api.ts';
import { weigh } from './exponentials.ts';
import { Random } from './random.ts';
import { Ranking } from './ranking.ts';

export interface SampledToken {
  id: number;
  /** Only when the sampler was made with `logprobs`. */
  logprobs: TokenLogprobs | undefined;
}

/** The most negative float32. */
const LOWEST = -3.4028234663852886e38;

export class Sampler {
  readonly #sampling: EffectiveSampling;
  readonly #vocabSize: number;
  readonly #logprobs: number | undefined;
  readonly #random: Random;
  readonly #biasIds: Int32Array;
  readonly #biasValues: Float64Array;
  readonly #adjusts: boolean;
  /** Logits after penalties and bias. */
  readonly #adjusted: Float32Array;
  /** By id. */
  readonly #weights: Float32Array;
  /** All tokens whose weight is below e^-depth weigh less, together, than 1 - top_p. */
  readonly #depth: number;
  readonly #ranking: Ranking;
  /** Weights in the order of #ranking.ids. */
  readonly #ranked: Float32Array;
  /** How often each token occurs; all zero between calls. */
  readonly #counts: Uint32Array;
  readonly #result: SampledToken = { id: 0, logprobs: undefined };

  /**
   * `logprobs`: how many most likely tokens to report besides the chosen one; undefined = no report. `isConstrained`: `next`
   * may be given masks.
   * All buffers are made here: none for greedy alone, at most seven words per token of the vocabulary.
   */
  constructor(
    sampling: EffectiveSampling,
    logitBias: Readonly<Record<number, number>> | undefined,
    vocabSize: number,
    logprobs?: number,
    isConstrained = false,
  ) {
    this.#sampling = sampling;
    this.#vocabSize = vocabSize;
    this.#logprobs = logprobs;
    this.#random = new Random(sampling.seed);
    const bias = Object.entries(logitBias ?? {});
    this.#biasIds = Int32Array.from(checkBiasIds(logitBias, vocabSize));
    this.#biasValues = Float64Array.from(bias, ([, value]) => value);
    const penalties =
      sampling.repetitionPenalty !== 1 || sampling.presencePenalty !== 0 || sampling.frequencyPenalty !== 0;
    this.#adjusts = penalties || bias.length > 0 || isConstrained;
    const { topK, topP } = sampling;
    const draws = !isGreedy(sampling);
    const ranks = draws && (topK > 0 || topP < 1);
    const words = (isNeeded: boolean) => (isNeeded ? vocabSize : 0);
    this.#adjusted = new Float32Array(words(this.#adjusts));
    this.#counts = new Uint32Array(words(penalties));
    this.#weights = new Float32Array(words(draws || logprobs !== undefined));
    this.#depth = -log64((1 - topP) / vocabSize);
    this.#ranked = new Float32Array(words(ranks));
    this.#ranking = new Ranking(words(ranks || logprobs !== undefined), Math.max(ranks ? topK + 1 : 0, logprobs ?? 0));
  }

  /**
   * The next token after promptIds and generatedIds. logits: [vocabSize], left as they are. mask: one bit per token that may
   * come, null = all. The result object is reused by the next call (its `logprobs` is not). Throws NON_FINITE_LOGITS.
   */
  next(
    logits: Float32Array,
    promptIds: ArrayLike<number>,
    generatedIds: ArrayLike<number>,
    mask: Int32Array | null = null,
  ): SampledToken {
    const best = checkedBest(logits, this.#vocabSize);
    let id = best;
    if (this.#adjusts) {
      this.#adjust(logits, promptIds, generatedIds);
      let adjustedBest = checkedBest(this.#adjusted, this.#vocabSize);
      if (mask !== null) adjustedBest = forbid(this.#adjusted, this.#vocabSize, mask);
      id = this.#choose(this.#adjusted, adjustedBest);
    } else id = this.#choose(logits, best);
    this.#result.id = id;
    this.#result.logprobs = this.#logprobs === undefined ? undefined : this.#report(logits, best, id);
    return this.#result;
  }

  /** Penalties and bias, into #adjusted. */
  #adjust(logits: Float32Array, promptIds: ArrayLike<number>, generatedIds: ArrayLike<number>): void {
    const adjusted = this.#adjusted;
    adjusted.set(logits.length === this.#vocabSize ? logits : logits.subarray(0, this.#vocabSize));
    if (this.#counts.length > 0) this.#penalise(adjusted, promptIds, generatedIds);
    for (let i = 0; i < this.#biasIds.length; i++) adjusted[this.#biasIds[i]] += this.#biasValues[i];
  }

  #penalise(adjusted: Float32Array, promptIds: ArrayLike<number>, generatedIds: ArrayLike<number>): void {
    const { repetitionPenalty, presencePenalty, frequencyPenalty } = this.#sampling;
    const counts = this.#counts;
    for (let i = 0; i < generatedIds.length; i++) counts[generatedIds[i]]++;
    if (repetitionPenalty !== 1) {
      this.#repeat(adjusted, promptIds, repetitionPenalty);
      this.#repeat(adjusted, generatedIds, repetitionPenalty);
      for (let i = 0; i < promptIds.length; i++) counts[promptIds[i]] &= 0x7fffffff;
      for (let i = 0; i < generatedIds.length; i++) counts[generatedIds[i]] &= 0x7fffffff;
    }
    for (let i = 0; i < generatedIds.length; i++) {
      const id = generatedIds[i];
      if (counts[id] > 0) adjusted[id] -= presencePenalty + counts[id] * frequencyPenalty;
      counts[id] = 0;
    }
  }

  /** The repetition penalty for each id not seen before; the top bit of its count marks it as seen. */
  #repeat(adjusted: Float32Array, ids: ArrayLike<number>, penalty: number): void {
    const counts = this.#counts;
    for (let i = 0; i < ids.length; i++) {
      const id = ids[i];
      if (counts[id] >= 0x80000000) continue;
      counts[id] += 0x80000000;
      adjusted[id] = adjusted[id] > 0 ? adjusted[id] / penalty : adjusted[id] * penalty;
    }
  }

  /** Steps 5 to 10; `best` has the largest logit. */
  #choose(logits: Float32Array, best: number): number {
    const { temperature, topK, topP } = this.#sampling;
    if (isGreedy(this.#sampling)) return best;
    const largest = logits[best];
    if (topK > 0 && topK < this.#vocabSize) {
      const next = this.#ranking.nth(logits, topK + 1);
      if (Math.fround((next - largest) / temperature) >= EXP_MIN) return this.#fromTopK(logits, largest, next);
      // else top_k leaves out nothing but weights of 0
    }
    const total = weigh(logits, this.#vocabSize, largest, temperature, this.#weights);
    return topP < 1 ? this.#fromTopP(logits, largest, total) : this.#draw(this.#weights, this.#vocabSize);
  }

  /** `next`: the largest logit that top_k leaves out. */
  #fromTopK(logits: Float32Array, largest: number, next: number): number {
    const { temperature, topK, topP } = this.#sampling;
    const ranked = this.#ranked;
    const { ids } = this.#ranking;
    this.#ranking.above(logits, next);
    pickOut(logits, ids, topK, ranked);
    const total = weigh(ranked, topK, largest, temperature, ranked);
    const kept = topP < 1 ? fewestReaching(ranked, topK, topP * total) : topK;
    return ids[this.#draw(ranked, kept)];
  }

  /** `total`: the sum of all weights, at least 1. Tokens below #depth are what top_p leaves out, or part of it. */
  #fromTopP(logits: Float32Array, largest: number, total: number): number {
    const { temperature, topP } = this.#sampling;
    let count = this.#rank(logits, largest - temperature * this.#depth);
    let kept = fewestReaching(this.#ranked, count, topP * total);
    if (kept > count) {
      // top_p leaves out less than the rounding of the sums
      count = this.#rank(logits, Number.NEGATIVE_INFINITY);
      kept = Math.min(count, fewestReaching(this.#ranked, count, topP * total));
    }
    return this.#ranking.ids[this.#draw(this.#ranked, kept)];
  }

  /** Weights of all logits of at least `floor`, ranked; returns how many. */
  #rank(logits: Float32Array, floor: number): number {
    const count = this.#ranking.above(logits, floor);
    pickOut(this.#weights, this.#ranking.ids, count, this.#ranked);
    return count;
  }

  /** Draws a position by the first `count` weights, leaving out those below min_p. */
  #draw(weights: Float32Array, count: number): number {
    return draw(weights, count, this.#sampling.minP, this.#random.nextFloat64());
  }

  /** Log-probabilities of the untouched logits: the most likely tokens, and always the chosen one. */
  #report(logits: Float32Array, best: number, chosen: number): TokenLogprobs {
    const count = Math.min(this.#logprobs!, this.#vocabSize);
    if (count > 0) this.#ranking.above(logits, this.#ranking.nth(logits, count));
    const top = Array.from(this.#ranking.ids.subarray(0, count));
    const largest = logits[best];
    const logSum = log64(weigh(logits, this.#vocabSize, largest, 1, this.#weights));
    const entry = (id: number) => ({ id, logprob: logits[id] - largest - logSum });
    const table = top.map(entry);
    if (!top.includes(chosen)) table.push(entry(chosen));
    return { ...entry(chosen), top: table };
  }
}

function isGreedy({ temperature, topK }: EffectiveSampling): boolean {
  return temperature === 0 || topK === 1;
}

/** The id of the largest logit, the lowest of equals. Throws when a logit is not finite. */
function checkedBest(logits: Float32Array, size: number): number {
  const best = finiteBest(logits, size);
  if (best >= 0) return best;
  const id = logits.findIndex(value => !Number.isFinite(value));
  throw new NumericError('NON_FINITE_LOGITS', `the logit of token ${id} is ${logits[id]}`, {
    hint: 'the weights or the computation are damaged; run coli eval oracle or convert the model again',
    details: { token: id, value: String(logits[id]) },
  });
}

/** As checkedBest, but -1 when a logit is not finite. */
function finiteBest(logits: Float32Array, size: number): number {
  let best = 0;
  let largest = logits[0];
  for (let id = 0; id < size; id++) {
    const logit = logits[id];
    if (logit > largest) {
      largest = logit;
      best = id;
    } else if (!(logit >= LOWEST)) return -1;
  }
  return largest === Number.POSITIVE_INFINITY ? -1 : best;
}

/**
 * Gives every token whose bit is not set minus infinity, so that its weight is 0 at any temperature. Returns the best of
 * those left. Throws when none is.
 */
function forbid(logits: Float32Array, size: number, mask: Int32Array): number {
  let best = -1;
  for (let id = 0; id < size; id++) {
    if (((mask[id >> 5] >> (id & 31)) & 1) === 0) logits[id] = Number.NEGATIVE_INFINITY;
    else if (best < 0 || logits[id] > logits[best]) best = id;
  }
  if (best >= 0) return best;
  throw new RequestError('CONSTRAINT_FAILED', 'no token of this model can continue the answer in the required form', {
    hint: 'simplify the schema or grammar',
  });
}

/** into[i] = values[ids[i]] for i < count */
function pickOut(values: Float32Array, ids: Int32Array, count: number, into: Float32Array): void {
  for (let i = 0; i < count; i++) into[i] = values[ids[i]];
}

/** How many of the first weights it takes to reach `target`; count + 1 when all `count` of them do not. */
function fewestReaching(weights: Float32Array, count: number, target: number): number {
  let reached = 0;
  for (let i = 0; i < count; i++) {
    reached += weights[i];
    if (reached >= target) return i + 1;
  }
  return count + 1;
}

/**
 * The position at which the weights of at least `least`, added first to last, exceed `random` times their sum. Some do,
 * for random < 1 keeps the product below the sum.
 */
function draw(weights: Float32Array, count: number, least: number, random: number): number {
  let total = 0;
  for (let i = 0; i < count; i++) if (weights[i] >= least) total += weights[i];
  const target = random * total;
  let reached = 0;
  let position = 0;
  for (let i = 0; i < count && reached <= target; i++) {
    const weight = weights[i];
    if (weight < least) continue;
    reached += weight;
    position = i;
  }
  return position;
}

/** The ids of a logit bias. Throws BAD_PARAMETER for one that the model does not have. */
export function checkBiasIds(logitBias: Readonly<Record<number, number>> | undefined, vocabSize: number): number[] {
  return Object.keys(logitBias ?? {}).map(key => {
    const id = Number(key);
    if (Number.isInteger(id) && id >= 0 && id < vocabSize) return id;
    throw new RequestError('BAD_PARAMETER', `logit_bias names token ${key}, ids go from 0 to ${vocabSize - 1}`, {
      hint: 'use token ids of this model',
      details: { parameter: 'logit_bias' },
    });
  });
}
