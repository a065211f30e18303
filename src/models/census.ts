/** Whether a checkpoint holds what a family needs, all of it and nothing else, told before any tensor is looked at closely. */

import { ModelFileError } from '../common/errors.ts';
import { requireExpertCount, requireTensors } from '../formats/census.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { listNames } from '../formats/files.ts';
import { isStored, matrixOfCompanion } from '../quant/companions.ts';
import type { ExpertForm, ExpertNames, MatrixRef } from '../quant/refs.ts';
import { formHolder } from '../quant/resolve.ts';
import type { ModelShape, TensorTable } from './family.ts';

/** Throws EXPERT_COUNT_MISMATCH where a layer's numbers of experts disagree, then TENSORS_MISSING for all that is absent. */
export function requireComplete(checkpoint: Checkpoint, table: TensorTable, shape: ModelShape): void {
  requireExpertCounts(checkpoint, table, shape);
  const required = new Set(table.dense.map(({ name, from = name }) => from));
  for (const names of table.experts) {
    if (checkpoint.tensors.has(names.record)) continue;
    if (names.merged && checkpoint.tensors.has(names.merged.weights)) continue;
    for (const { name } of refsOf(formOf(checkpoint, names))) required.add(name);
  }
  requireTensors(checkpoint.directory, { has: name => isStored(checkpoint, name) }, required);
}

/** The form in which an expert is there, or the most common one. */
function formOf(checkpoint: Checkpoint, { forms }: ExpertNames): ExpertForm {
  return forms.find(form => formHolder(checkpoint, form, forms) !== null) ?? forms[0];
}

function refsOf({ gate, up, down, biases }: ExpertForm): MatrixRef[] {
  return biases ? [gate, up, down, biases.gate, biases.up, biases.down] : [gate, up, down];
}

/** config.json, the router and the tensors of each layer must name the same number of experts. */
function requireExpertCounts(checkpoint: Checkpoint, table: TensorTable, shape: ModelShape): void {
  const numbered = numbersAfterPrefix(checkpoint);
  const routers = table.dense.filter(({ role, rows }) => role === 'router' && rows === shape.experts);
  const first = new Map(table.experts.filter(({ expert }) => expert === 0).map(names => [names.layer, names]));
  for (const [i, layer] of shape.moeLayers.entries()) {
    const names = first.get(layer);
    // routers come in the order of the layers that route
    const router = routers.length === shape.moeLayers.length ? routers[i] : undefined;
    const rows = router && checkpoint.tensors.get(router.from ?? router.name)?.shape[0];
    const found = names && storedExperts(checkpoint, names, numbered);
    if (rows === undefined || !found) continue;
    requireExpertCount(checkpoint.directory, layer, { config: shape.experts, routerRows: rows, tensors: found });
  }
}

/** How many experts of a layer have tensors: by the first dimension of a joint tensor, or by the numbers in names. */
function storedExperts(checkpoint: Checkpoint, names: ExpertNames, numbered: ReadonlyMap<string, Set<string>>): number {
  const { tensors } = checkpoint;
  for (const form of names.forms) {
    const holder = formHolder(checkpoint, form, names.forms);
    if (holder === null || refsOf(form).find(({ name }) => name === holder)?.slice === undefined) continue;
    const tensor = tensors.get(holder) ?? tensors.get(`${holder}_blocks`) ?? tensors.get(`${holder}_packed`);
    return tensor?.shape[0] ?? 0;
  }
  const separate = names.forms.find(({ gate }) => gate.slice === undefined)?.gate.name ?? names.record;
  const at = separate.lastIndexOf(`.${names.expert}.`);
  return numbered.get(separate.slice(0, at + 1))?.size ?? 0;
}

/** "model.layers.0.mlp.experts." -> the numbers that follow it in tensor names. */
function numbersAfterPrefix({ tensors }: Checkpoint): Map<string, Set<string>> {
  const numbers = new Map<string, Set<string>>();
  for (const name of tensors.keys()) {
    const match = /^(.*\.)(\d{1,6})\./.exec(name);
    if (match === null) continue;
    const known = numbers.get(match[1]);
    if (known) known.add(match[2]);
    else numbers.set(match[1], new Set([match[2]]));
  }
  return numbers;
}

/** Weights that no forward pass would use make it another model: a variant with biases, shared experts, more layers. */
export function requireKnown(checkpoint: Checkpoint, table: TensorTable): void {
  const known = new Set<string>();
  for (const { name, from = name } of table.dense) known.add(from);
  for (const { record, merged, forms } of table.experts) {
    known.add(record);
    if (merged) known.add(merged.weights).add(merged.scales);
    for (const form of forms) for (const { name } of refsOf(form)) known.add(name);
  }
  const { head } = table;
  const notHead = head && !isStored(checkpoint, head.sign) ? head.names : null;
  const isIgnored = (name: string): boolean =>
    table.ignored.some(pattern => pattern.test(name)) && notHead?.test(name) !== true;
  const isKnown = (name: string): boolean => known.has(name) || isIgnored(name);
  const unknown = [...checkpoint.tensors.keys()].filter(name => {
    if (isKnown(name)) return false;
    const matrix = matrixOfCompanion(name);
    if (matrix === null) return true;
    return !isIgnored(matrix) && !(known.has(matrix) && isStored(checkpoint, matrix));
  });
  if (unknown.length === 0) return;
  const count = unknown.length === 1 ? '1 tensor' : `${unknown.length} tensors`;
  throw new ModelFileError(
    'UNKNOWN_TENSORS',
    `${checkpoint.directory} holds ${count} that its config.json has no use for: ${listNames(unknown)}`,
    {
      hint: 'config.json and weights belong to different models, or this is a variant that is not supported',
      details: { count: unknown.length, tensors: unknown.slice(0, 100) },
    },
  );
}
