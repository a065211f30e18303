/** Traces for tests, and the optimum by looking at everything that could be done. */

import fc from 'fast-check';
import { type Trace, TraceBuilder, type TraceHeader } from './trace.ts';

export function headerOf(layers: number, experts: number, topK = 1, label = 'test'): TraceHeader {
  return { model: 'ab', label, experts, topK, expertBytes: Array.from({ length: layers }, (_, layer) => 100 + layer) };
}

export type Lease = readonly [layer: number, experts: readonly number[]];

export function traceOf(layers: number, experts: number, leases: readonly Lease[]): Trace {
  const builder = new TraceBuilder(headerOf(layers, experts));
  for (const [layer, ids] of leases) builder.add(layer, 1, ids);
  return builder.build();
}

/** Leases of layers that come round in a circle, or in any order, of at most `most` requests together. */
export function randomLeases(layers: number, experts: number, most: number): fc.Arbitrary<Lease[]> {
  const ids = fc.uniqueArray(fc.nat(experts - 1), { minLength: 1, maxLength: experts });
  const lease = fc.tuple(
    fc.nat(layers - 1),
    ids.map(list => list.sort((a, b) => a - b)),
  );
  return fc.tuple(fc.array(lease, { minLength: 1, maxLength: most }), fc.boolean()).map(([list, circle]) => {
    const kept: Lease[] = [];
    let requests = 0;
    for (const [i, [layer, experts]] of list.entries()) {
      requests += experts.length;
      if (requests > most) break;
      kept.push([circle ? i % layers : layer, experts]);
    }
    return kept;
  });
}

/** Most hits over everything that may be in memory after each lease. */
export function bruteForce(leases: readonly Lease[], experts: number, slots: number): number {
  const known = new Map<string, number>();
  const from = (lease: number, memory: readonly number[]): number => {
    if (lease === leases.length) return 0;
    const key = `${lease}:${memory.join()}`;
    const before = known.get(key);
    if (before !== undefined) return before;
    const [layer, ids] = leases[lease];
    const wanted = ids.map(id => layer * experts + id);
    const hits = wanted.filter(record => memory.includes(record)).length;
    let best = 0;
    for (const after of outcomes(memory, wanted, slots)) best = Math.max(best, from(lease + 1, after));
    known.set(key, hits + best);
    return hits + best;
  };
  return from(0, []);
}

/** What may be in memory after a lease: all of it and any of the others, or, where there are too few slots for it, any of both. */
function outcomes(memory: readonly number[], wanted: readonly number[], slots: number): number[][] {
  const all = [...new Set([...memory, ...wanted])].sort((a, b) => a - b);
  const fits = wanted.length <= slots;
  return subsets(all).filter(
    after => after.length <= slots && (!fits || wanted.every(record => after.includes(record))),
  );
}

function subsets(all: readonly number[]): number[][] {
  return Array.from({ length: 2 ** all.length }, (_, mask) => all.filter((_, i) => (mask >> i) & 1));
}
