/** Which experts a token uses, and the sum of what they gave. */

import type { Kernels } from '../kernels.ts';
import { exp32 } from './math.ts';
import type { ReferenceMemory } from './memory.ts';

const f = Math.fround;
const SMALLEST_SUM = f(1e-20);

export function routingKernels({ f32, i32, reduce16 }: ReferenceMemory): Pick<Kernels, 'topK' | 'combine'> {
  /** Indices of the n largest of `values` among those allowed, descending, ties to the lower index. */
  const largest = (values: readonly number[], n: number, allowed: (i: number) => boolean): number[] => {
    const taken: number[] = [];
    while (taken.length < n) {
      let best = -1;
      for (let i = 0; i < values.length; i++) {
        if (taken.includes(i) || !allowed(i)) continue;
        if (best < 0 || values[i] > values[best]) best = i;
      }
      taken.push(best);
    }
    return taken;
  };

  return {
    topK(x, bias, columns, k, groups, keptGroups, groupRule, ids, weights, weightRule, factor, row0, row1) {
      const perGroup = columns / groups;
      for (let row = row0; row < row1; row++) {
        const from = (x >>> 2) + row * columns;
        const to = (weights >>> 2) + row * k;
        const choice = Array.from({ length: columns }, (_, i) =>
          bias === 0 ? f32[from + i] : f(f32[from + i] + f32[(bias >>> 2) + i]),
        );
        const scoreOf = (group: number): number => {
          const members = choice.slice(group * perGroup, (group + 1) * perGroup);
          const [first, second] = largest(members, groupRule === 0 ? 1 : 2, () => true);
          return groupRule === 0 ? members[first] : f(members[first] + members[second]);
        };
        const scores = groups > 1 ? Array.from({ length: groups }, (_, group) => scoreOf(group)) : [0];
        const kept = largest(scores, groups > 1 ? keptGroups : 1, () => true);
        const chosen = largest(choice, k, i => kept.includes(Math.floor(i / perGroup)));
        for (let slot = 0; slot < k; slot++) {
          i32[(ids >>> 2) + row * k + slot] = chosen[slot];
          f32[to + slot] = f32[from + chosen[slot]];
        }
        if (weightRule === 1) {
          const sum = f(reduce16(k, slot => f32[to + slot]) + SMALLEST_SUM);
          for (let slot = 0; slot < k; slot++) f32[to + slot] /= sum;
        } else if (weightRule === 2) {
          let max = Number.NEGATIVE_INFINITY;
          for (let slot = 0; slot < k; slot++) if (f32[to + slot] > max) max = f32[to + slot];
          for (let slot = 0; slot < k; slot++) f32[to + slot] = exp32(f(f32[to + slot] - max));
          const sum = reduce16(k, slot => f32[to + slot]);
          for (let slot = 0; slot < k; slot++) f32[to + slot] /= sum;
        }
        for (let slot = 0; slot < k; slot++) f32[to + slot] *= f(factor);
      }
    },

    combine(x, parts, weights, k, shared, columns, row0, row1) {
      for (let row = row0; row < row1; row++) {
        for (let i = 0; i < columns; i++) {
          let sum = 0;
          for (let slot = 0; slot < k; slot++) {
            const product = f(
              f32[(weights >>> 2) + row * k + slot] * f32[(parts >>> 2) + (row * k + slot) * columns + i],
            );
            sum = slot === 0 ? product : f(sum + product);
          }
          if (shared !== 0) sum = f(sum + f32[(shared >>> 2) + row * columns + i]);
          f32[(x >>> 2) + row * columns + i] += sum;
        }
      }
    },
  };
}
