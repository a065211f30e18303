/** The choice of experts and the sum of what they gave, made wrong in one way at a time. */

import type { Kernels } from '../../kernels.ts';
import { exp32 } from '../../reference/math.ts';
import { f, f32, i32, laneSum, largest } from '../test-support.ts';

interface TopKFlaws {
  better?: (value: number, best: number) => boolean;
  sum?: (values: Float32Array) => number;
  /** Added to the sum. */
  least?: number;
  /** The weights come from x + bias. */
  biased?: boolean;
  /** The factor comes before the rule. */
  early?: boolean;
  scoreOf?: (first: number, second: number, rule: number) => number;
}

export function topKWith(flaws: TopKFlaws): Kernels['topK'] {
  const { better = (value, best) => value > best, sum = laneSum, least = f(1e-20), biased, early } = flaws;
  const { scoreOf = (first, second, rule) => (rule === 0 ? first : f(first + second)) } = flaws;
  /** Indices of the n best, one after the other, among those allowed. */
  const best = (values: ArrayLike<number>, n: number, allowed: (i: number) => boolean = () => true): number[] => {
    const taken: number[] = [];
    while (taken.length < n) {
      let at = -1;
      for (let i = 0; i < values.length; i++) {
        if (!taken.includes(i) && allowed(i) && (at < 0 || better(values[i], values[at]))) at = i;
      }
      taken.push(at);
    }
    return taken;
  };
  return (x, bias, columns, k, groups, keptGroups, groupRule, ids, weights, weightRule, factor, row0, row1) => {
    const size = columns / groups;
    for (let row = row0; row < row1; row++) {
      const values = f32.subarray((x >> 2) + row * columns, (x >> 2) + (row + 1) * columns);
      const choice = bias ? values.map((value, i) => value + f32[(bias >> 2) + i]) : values;
      const scores = Array.from({ length: groups }, (_, group) => {
        const members = choice.subarray(group * size, (group + 1) * size);
        const [first, second] = best(members, Math.min(2, size));
        return scoreOf(members[first], members[second], groupRule);
      });
      const kept = groups > 1 ? best(scores, keptGroups) : [0];
      const chosen = best(choice, k, i => kept.includes(Math.floor(i / size)));
      i32.set(chosen, (ids >> 2) + row * k);
      const weight = f32.subarray((weights >> 2) + row * k, (weights >> 2) + (row + 1) * k);
      for (const [slot, i] of chosen.entries()) weight[slot] = (biased ? choice : values)[i];
      if (early) for (let slot = 0; slot < k; slot++) weight[slot] *= f(factor);
      const max = largest(weight);
      if (weightRule === 2) for (let slot = 0; slot < k; slot++) weight[slot] = exp32(f(weight[slot] - max));
      const total = weightRule === 1 ? f(sum(weight) + least) : sum(weight);
      if (weightRule !== 0) for (let slot = 0; slot < k; slot++) weight[slot] /= total;
      if (!early) for (let slot = 0; slot < k; slot++) weight[slot] *= f(factor);
    }
  };
}

interface CombineFlaws {
  order?: (slot: number, k: number) => number;
  fused?: boolean;
  /** Each part is added to the residual by itself. */
  straight?: boolean;
  sharedFirst?: boolean;
}

export function combineWith(flaws: CombineFlaws): Kernels['combine'] {
  const { order = slot => slot, fused, straight, sharedFirst } = flaws;
  return (x, parts, weights, k, shared, columns, row0, row1) => {
    for (let at = row0 * columns; at < row1 * columns; at++) {
      const row = Math.floor(at / columns);
      const terms = Array.from({ length: k }, (_, step) => {
        const slot = row * k + order(step, k);
        const product = f32[(weights >> 2) + slot] * f32[(parts >> 2) + slot * columns + (at % columns)];
        return fused && step > 0 ? product : f(product);
      });
      if (k === 0) terms.push(0);
      if (shared && sharedFirst) terms.unshift(f32[(shared >> 2) + at]);
      else if (shared) terms.push(f32[(shared >> 2) + at]);
      if (straight) terms.unshift(f32[(x >> 2) + at]);
      const sum = terms.slice(1).reduce((total, term) => f(total + term), terms[0]);
      f32[(x >> 2) + at] = straight ? sum : f32[(x >> 2) + at] + sum;
    }
  };
}
