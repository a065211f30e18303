/** Scenes of linear attention. */

import { type Kind, RandomValues } from '../random-values.ts';
import { label, Scene } from '../scene.ts';

export interface ConvFacts {
  rows: number;
  channels: number;
  taps: number;
  kind: Kind;
}

export function convSiluCase(seed: number, facts: ConvFacts): Scene {
  const scene = new Scene('convSilu', label(facts));
  const random = new RandomValues(seed);
  const { rows, channels, taps, kind } = facts;
  const u = scene.floats(random.floats(rows * channels, kind));
  const tail = scene.floats(random.floats((taps - 1) * channels, kind));
  const w = scene.floats(random.floats(channels * taps, 'ordinary'));
  const y = scene.reserveFloats(rows * channels);
  scene.units = channels;
  scene.run = (k, from, to) => k.convSilu(u, tail, w, y, channels, taps, rows, from, to);
  return scene;
}

export interface GateFacts {
  rows: number;
  heads: number;
  kind: Kind;
  inPlace?: boolean;
  /** The rates are given as they are. */
  rates?: boolean;
}

export function deltaGatesCase(seed: number, facts: GateFacts): Scene {
  const scene = new Scene('deltaGates', label(facts));
  const random = new RandomValues(seed);
  const { rows, heads, kind, inPlace, rates } = facts;
  const a = scene.floats(random.floats(rows * heads, kind));
  const b = scene.floats(random.floats(rows * heads, kind));
  const given = scene.floats(random.floats(heads, kind === 'special' ? 'special' : 'ordinary'));
  const dtBias = scene.floats(random.floats(heads, 'ordinary'));
  const decay = inPlace ? a : scene.reserveFloats(rows * heads);
  const beta = inPlace ? b : scene.reserveFloats(rows * heads);
  scene.units = rows;
  scene.run = (k, from, to) => k.deltaGates(a, b, given, rates ? 0 : 1, dtBias, decay, beta, heads, from, to);
  return scene;
}

export interface DeltaFacts {
  rows: number;
  keyHeads: number;
  valueHeads: number;
  keyDim: number;
  valueDim: number;
  kind: Kind;
  tiled?: boolean;
}

export function deltaRuleCase(seed: number, facts: DeltaFacts): Scene {
  const scene = new Scene('deltaRule', label(facts));
  const random = new RandomValues(seed);
  const { rows, keyHeads, valueHeads, keyDim, valueDim, kind, tiled } = facts;
  const pairing = tiled ? 1 : 0;
  const qkv = scene.floats(random.floats(rows * (2 * keyHeads * keyDim + valueHeads * valueDim), kind));
  // shares of the state and of the change that are kept: mostly between 0 and 1
  const share = () => (kind === 'special' || kind === 'extreme' ? random.float(kind) : random.bits() * 2 ** -32);
  const decay = scene.floats(Float32Array.from({ length: rows * valueHeads }, share));
  const beta = scene.floats(Float32Array.from({ length: rows * valueHeads }, share));
  const state = scene.floats(random.floats(valueHeads * keyDim * valueDim, kind));
  const out = scene.reserveFloats(rows * valueHeads * valueDim);
  const scratch = scene.scratch(2 * keyDim + valueDim);
  scene.units = valueHeads;
  scene.run = (k, from, to) =>
    k.deltaRule(qkv, decay, beta, state, out, keyHeads, valueHeads, pairing, keyDim, valueDim, rows, scratch, from, to);
  return scene;
}
