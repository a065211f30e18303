/**
 * From logits to the next token. The order is fixed:
 *
 *   1. logits must be finite; log-probabilities are taken here, before anything is changed
 *   2. repetition penalty, once per distinct token of prompt and answer (logit > 0: divided, else multiplied)
 *   3. presence and frequency penalties, tokens of the answer only
 *   4. logit bias
 *   5. temperature 0 or top_k 1: the largest logit, ties to the lower id, no random number drawn
 *   6. temperature: weight = e^((logit - largest) / temperature)
 *   7. top_k: the k largest, ties to the lower id
 *   8. top_p: the fewest largest whose weights reach top_p of the weights left by top_k
 *   9. min_p: those with at least min_p times the largest weight
 *  10. one random number per token picks from the weights, added in float64
 *
 * Nothing here depends on the machine: float32 and float64 basic arithmetic, our own exponential and generator.
 */

import { NumericError, RequestError } from '../common/errors.ts';
import { exp32 } from '../kernels/reference/math.ts';
import { log64 } from '../kernels/scalar.ts';
import type { EffectiveSampling, TokenLogprobs } from './api.ts';
import { Random } from './random.ts';

export interface SampledToken {
  id: number;
  /** Only when the sampler was made with `logprobs`. */
  logprobs: TokenLogprobs | undefined;
}

const f = Math.fround;

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
  readonly #weights: Float32Array;
  /** Token ids: a heap by logit, of which #take moves the largest to the end, one by one. */
  readonly #heap: Int32Array;
  /** How often each token occurs; all zero between calls. */
  readonly #counts: Uint32Array;
  readonly #topIds: Int32Array;
  /** Sum of the weights of the last #weigh. */
  #total = 0;
  readonly #result: SampledToken = { id: 0, logprobs: undefined };

  /**
   * `logprobs`: how many most likely tokens to report besides the chosen one; undefined = no report.
   * All buffers are made here: three words per token of the vocabulary, four with penalties.
   */
  constructor(
    sampling: EffectiveSampling,
    logitBias: Readonly<Record<number, number>> | undefined,
    vocabSize: number,
    logprobs?: number,
  ) {
    this.#sampling = sampling;
    this.#vocabSize = vocabSize;
    this.#logprobs = logprobs;
    this.#random = new Random(sampling.seed);
    const bias = Object.entries(logitBias ?? {});
    this.#biasIds = Int32Array.from(bias, ([id]) => checkBiasId(id, vocabSize));
    this.#biasValues = Float64Array.from(bias, ([, value]) => value);
    const penalties =
      sampling.repetitionPenalty !== 1 || sampling.presencePenalty !== 0 || sampling.frequencyPenalty !== 0;
    this.#adjusts = penalties || bias.length > 0;
    this.#adjusted = new Float32Array(vocabSize);
    this.#weights = new Float32Array(vocabSize);
    this.#heap = new Int32Array(vocabSize);
    this.#counts = new Uint32Array(penalties ? vocabSize : 0);
    this.#topIds = new Int32Array(Math.min(logprobs ?? 0, vocabSize));
  }

  /**
   * The next token after promptIds and generatedIds. logits: [vocabSize], left as they are. The result object is
   * reused by the next call (its `logprobs` is not). Throws NON_FINITE_LOGITS.
   */
  next(logits: Float32Array, promptIds: ArrayLike<number>, generatedIds: ArrayLike<number>): SampledToken {
    this.#checkFinite(logits);
    const adjusted = this.#adjust(logits, promptIds, generatedIds);
    const id = this.#choose(adjusted);
    this.#result.id = id;
    this.#result.logprobs = this.#logprobs === undefined ? undefined : this.#report(logits, id);
    return this.#result;
  }

  #checkFinite(logits: Float32Array): void {
    for (let id = 0; id < this.#vocabSize; id++) {
      const value = logits[id];
      if (value - value === 0) continue;
      throw new NumericError('NON_FINITE_LOGITS', `the logit of token ${id} is ${value}`, {
        hint: 'the weights or the computation are damaged; run coli eval oracle or convert the model again',
        details: { token: id, value: String(value) },
      });
    }
  }

  /** Penalties and bias into #adjusted; the logits themselves when there are none. */
  #adjust(logits: Float32Array, promptIds: ArrayLike<number>, generatedIds: ArrayLike<number>): Float32Array {
    if (!this.#adjusts) return logits;
    const adjusted = this.#adjusted;
    adjusted.set(logits.length === this.#vocabSize ? logits : logits.subarray(0, this.#vocabSize));
    if (this.#counts.length > 0) this.#penalise(adjusted, promptIds, generatedIds);
    for (let i = 0; i < this.#biasIds.length; i++) adjusted[this.#biasIds[i]] += this.#biasValues[i];
    this.#checkFinite(adjusted);
    return adjusted;
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

  #choose(logits: Float32Array): number {
    const { temperature, topP, topK, minP } = this.#sampling;
    const best = argmax(logits, this.#vocabSize);
    if (temperature === 0 || topK === 1) return best;

    const candidates = this.#weigh(logits, logits[best], temperature);
    const limited = topK > 0 && topK < candidates;
    if (!limited && topP === 1) return this.#draw(minP, 0, candidates, 1);

    // The heap's top goes to the end of the array: taken tokens are at the back, largest last.
    this.#heapify(logits, candidates);
    let remaining = candidates;
    let total = this.#total;
    if (limited) {
      total = 0;
      while (remaining > candidates - topK) total += this.#weights[this.#take(logits, remaining--)];
    }
    if (topP === 1) return this.#draw(minP, candidates - 1, candidates - remaining, -1);

    let kept = 0;
    let reached = 0;
    while (kept < candidates && reached < topP * total) {
      if (!limited) this.#take(logits, remaining--);
      reached += this.#weights[this.#heap[candidates - 1 - kept++]];
    }
    return this.#draw(minP, candidates - 1, kept, -1);
  }

  /** Weights of all tokens; those above zero become candidates in #heap, in order of id. Returns how many. */
  #weigh(logits: Float32Array, largest: number, temperature: number): number {
    let candidates = 0;
    let total = 0;
    for (let id = 0; id < this.#vocabSize; id++) {
      const weight = exp32(f((logits[id] - largest) / temperature));
      this.#weights[id] = weight;
      if (weight === 0) continue;
      this.#heap[candidates++] = id;
      total += weight;
    }
    this.#total = total;
    return candidates;
  }

  /** Draws from `count` candidates of #heap, from index `first` on in steps of `step`, by their weights. */
  #draw(minP: number, first: number, count: number, step: 1 | -1): number {
    let total = 0;
    for (let i = 0, at = first; i < count; i++, at += step) {
      const weight = this.#weights[this.#heap[at]];
      if (weight >= minP) total += weight; // the largest weight is e^0 = 1
    }
    const target = this.#random.nextFloat64() * total;
    let reached = 0;
    let last = this.#heap[first];
    for (let i = 0, at = first; i < count; i++, at += step) {
      const id = this.#heap[at];
      const weight = this.#weights[id];
      if (weight < minP) continue;
      reached += weight;
      last = id;
      if (reached > target) break;
    }
    return last;
  }

  #heapify(logits: Float32Array, size: number): void {
    for (let at = (size >> 1) - 1; at >= 0; at--) this.#siftDown(logits, at, size);
  }

  /** Moves the largest of the heap's `size` ids to index size - 1 and returns it. */
  #take(logits: Float32Array, size: number): number {
    const id = this.#heap[0];
    this.#heap[0] = this.#heap[size - 1];
    this.#heap[size - 1] = id;
    this.#siftDown(logits, 0, size - 1);
    return id;
  }

  #siftDown(logits: Float32Array, start: number, size: number): void {
    const heap = this.#heap;
    const id = heap[start];
    let at = start;
    for (;;) {
      let child = 2 * at + 1;
      if (child >= size) break;
      if (child + 1 < size && before(logits, heap[child + 1], heap[child])) child++;
      if (!before(logits, heap[child], id)) break;
      heap[at] = heap[child];
      at = child;
    }
    heap[at] = id;
  }

  /** Log-probabilities of the untouched logits: the most likely tokens, and always the chosen one. */
  #report(logits: Float32Array, chosen: number): TokenLogprobs {
    const top = this.#topIds;
    let filled = 0;
    for (let id = 0; id < this.#vocabSize && top.length > 0; id++) {
      if (filled === top.length && !before(logits, id, top[filled - 1])) continue;
      let at = filled < top.length ? filled++ : filled - 1;
      for (; at > 0 && before(logits, id, top[at - 1]); at--) top[at] = top[at - 1];
      top[at] = id;
    }
    const largest = logits[argmax(logits, this.#vocabSize)];
    let sum = 0;
    for (let id = 0; id < this.#vocabSize; id++) sum += exp32(f(logits[id] - largest));
    const logSum = log64(sum);
    const entry = (id: number) => ({ id, logprob: logits[id] - largest - logSum });
    const table = Array.from(top.subarray(0, filled), entry);
    if (!top.includes(chosen)) table.push(entry(chosen));
    return { ...entry(chosen), top: table };
  }
}

/** Larger logits come first, then lower ids. */
function before(logits: Float32Array, a: number, b: number): boolean {
  return logits[a] > logits[b] || (logits[a] === logits[b] && a < b);
}

function argmax(logits: Float32Array, size: number): number {
  let best = 0;
  for (let id = 1; id < size; id++) if (logits[id] > logits[best]) best = id;
  return best;
}

function checkBiasId(key: string, vocabSize: number): number {
  const id = Number(key);
  if (!Number.isInteger(id) || id < 0 || id >= vocabSize) {
    throw new RequestError('BAD_PARAMETER', `logit_bias names token ${key}, ids go from 0 to ${vocabSize - 1}`, {
      hint: 'use token ids of this model',
      details: { parameter: 'logit_bias' },
    });
  }
  return id;
}
