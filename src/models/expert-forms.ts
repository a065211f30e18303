/** The forms in which published checkpoints store the routed experts of a layer (quant/refs.ts: ExpertForm). */

import type { ExpertForm, ExpertNames, MatrixRef } from '../quant/refs.ts';

/** Last parts of the names of gate, up and down: Mixtral and MiniMax say w1, w3, w2. */
export interface RoleNames {
  readonly gate: string;
  readonly up: string;
  readonly down: string;
}

export const PROJECTIONS: RoleNames = { gate: 'gate_proj', up: 'up_proj', down: 'down_proj' };
export const W123: RoleNames = { gate: 'w1', up: 'w3', down: 'w2' };

/** One tensor per matrix and expert: PREFIX.E.gate_proj.weight. */
export function separateForm(prefix: string, expert: number, names: RoleNames = PROJECTIONS): ExpertForm {
  const ref = (role: string): MatrixRef => ({ name: `${prefix}.${expert}.${role}.weight` });
  return { gate: ref(names.gate), up: ref(names.up), down: ref(names.down) };
}

/** One tensor per role with all experts, as GGUF files have them: PREFIX.gate_proj.weight [experts, width, hidden]. */
export function stackedForm(prefix: string, expert: number, experts: number): ExpertForm {
  const slice = { index: expert, of: experts };
  const ref = (role: string): MatrixRef => ({ name: `${prefix}.${role}.weight`, slice });
  return { gate: ref(PROJECTIONS.gate), up: ref(PROJECTIONS.up), down: ref(PROJECTIONS.down) };
}

/** gate and up of all experts in one tensor, gate rows first: PREFIX.gate_up_proj [experts, 2*width, hidden]. */
export function fusedForm(prefix: string, expert: number, experts: number, width: number): ExpertForm {
  const slice = { index: expert, of: experts };
  const name = `${prefix}.gate_up_proj`;
  return {
    gate: { name, slice, rows: { first: 0, step: 1, of: 2 * width } },
    up: { name, slice, rows: { first: width, step: 1, of: 2 * width } },
    down: { name: `${prefix}.down_proj`, slice },
  };
}

/** Of a class, because a getter in an object literal costs each object a kilobyte. */
class Names implements ExpertNames {
  readonly layer: number;
  readonly expert: number;
  readonly record: string;
  readonly #forms: () => readonly ExpertForm[];

  constructor(layer: number, expert: number, prefix: string, forms: () => readonly ExpertForm[]) {
    this.layer = layer;
    this.expert = expert;
    this.record = `${prefix}.${expert}.record`;
    this.#forms = forms;
  }

  get forms(): readonly ExpertForm[] {
    return this.#forms();
  }
}

/**
 * Names of an expert: `prefix` is what stands before its number, such as model.layers.3.mlp.experts. Its forms are made whenever they
 * are asked for: those of all experts of a large model together would take 60 MB while it is opened.
 */
export function expertNames(
  layer: number,
  expert: number,
  prefix: string,
  forms: () => readonly ExpertForm[],
): ExpertNames {
  return new Names(layer, expert, prefix, forms);
}
