/** Scenes of the choice of experts and of the sum of what they gave. */

import { type Kind, RandomValues } from '../random-values.ts';
import { label, Scene } from '../scene.ts';
import type { RowFacts } from './rows.ts';

export interface TopKFacts extends RowFacts {
  k: number;
  /** Kind of a bias on the choice; none without. */
  bias?: Kind;
  /** Groups of neighbours and how many of them take part; default: one group. */
  groups?: number;
  keptGroups?: number;
  groupRule?: number;
  weightRule?: number;
  factor?: number;
}

export function topKCase(seed: number, facts: TopKFacts): Scene {
  const scene = new Scene('topK', label(facts));
  const random = new RandomValues(seed);
  const { rows, columns, kind, k, groups = 1, keptGroups = 1, groupRule = 0, weightRule = 0, factor = 1 } = facts;
  const x = scene.floats(random.floats(rows * columns, kind));
  const bias = facts.bias ? scene.floats(random.floats(columns, facts.bias)) : 0;
  const ids = scene.ints(new Int32Array(rows * k));
  const weight = scene.reserveFloats(rows * k);
  scene.units = rows;
  scene.run = (kernels, from, to) =>
    kernels.topK(x, bias, columns, k, groups, keptGroups, groupRule, ids, weight, weightRule, factor, from, to);
  return scene;
}

export function combineCase(seed: number, facts: RowFacts & { k: number; shared?: boolean }): Scene {
  const scene = new Scene('combine', label(facts));
  const random = new RandomValues(seed);
  const { rows, columns, kind, k } = facts;
  const x = scene.floats(random.floats(rows * columns, kind));
  const parts = scene.floats(random.floats(rows * k * columns, kind));
  const weight = scene.floats(random.floats(rows * k, 'ordinary'));
  const shared = facts.shared ? scene.floats(random.floats(rows * columns, kind)) : 0;
  scene.units = rows;
  scene.run = (kernels, from, to) => kernels.combine(x, parts, weight, k, shared, columns, from, to);
  return scene;
}
