/** Packs taken apart and changed: one of every family and of every way to store experts. */

import { join } from 'node:path';
import { expect } from 'vitest';
import type { ColiError } from '../../src/common/errors.ts';
import { type ModelFiles, readModel } from '../../src/engine/model-files.ts';
import { familyOf } from '../../src/models/registry.ts';
import { LoosePack } from '../support/loose-pack.ts';
import { packDirectory } from '../support/packs.ts';
import { refusalOf, temporaryDirectory } from './fixtures.ts';

export const FAMILY_PACKS = [
  'olmoe',
  'olmoe-colibri',
  'qwen3-moe-fp8',
  'mixtral',
  'glm4-moe',
  'minimax-m2-fp8',
  'gpt-oss',
  'gpt-oss-mxfp4',
  'deepseek-v2-lite',
  'deepseek-v3-fp8',
  'glm-moe-dsa-fp8',
  'qwen36',
  'qwen36-int4g64',
] as const;

const taken = new Map<string, LoosePack>();

/** A copy that may be changed. */
export function loose(name: string): LoosePack {
  const pack = taken.get(name) ?? new LoosePack(packDirectory(name));
  taken.set(name, pack);
  return pack.copy();
}

export interface Reading {
  readonly mtp?: boolean;
}

/** How the changed pack is refused: from its headers, naming its directory or a field. */
export function refusalOfPack(pack: LoosePack, { mtp = false }: Reading = {}): ColiError {
  const model = pack.writeHeaders(join(temporaryDirectory(), 'model'));
  const error = refusalOf(() => readModel({ model, mtp }));
  expect(['ConfigError', 'ModelFileError', 'RequestError']).toContain(error.name);
  if (error.name === 'ModelFileError') expect(error.message).toContain(model);
  else if (error.code === 'BAD_CONFIG') expect(error.details.path).toBeTruthy();
  return error;
}

/** The same for what config.json alone says, without files. */
export function refusalOfConfig({ config }: LoosePack): ColiError {
  return refusalOf(() => familyOf(config).parseConfig(config));
}

export function readPack(pack: LoosePack, { mtp = false }: Reading = {}): ModelFiles {
  return readModel({ model: pack.writeHeaders(join(temporaryDirectory(), 'model')), mtp });
}

export const layersOf = (pack: LoosePack): number => Number(pack.text.num_hidden_layers);
export const lastLayer = (pack: LoosePack): number => layersOf(pack) - 1;
/** Matches what the main model calls its last layer. */
export const inLast = (pack: LoosePack, rest: string): RegExp =>
  new RegExp(`^model\\.(?:language_model\\.)?layers\\.${lastLayer(pack)}\\..*${rest}`);

/** What families call the number of their experts. */
export function expertField(pack: LoosePack): string {
  return ['num_experts', 'num_local_experts', 'n_routed_experts'].find(field => field in pack.text)!;
}

export const ROUTER = '(?:mlp\\.(?:gate|router)|block_sparse_moe\\.gate)\\.weight$';
const OF_ROUTER = /(?:e_score_correction_bias|router\.bias)$/;
const FUSED = /mlp\.experts\.(?:gate_up|down)_proj/;

/** The gate matrix of expert 5 in the last layer, or what holds it. */
export function gateOf(pack: LoosePack): string {
  const forms = [
    'experts\\.5\\.(?:gate_proj|w1)\\.weight$',
    'experts\\.gate_up_proj(?:_blocks)?$',
    'experts\\.5\\.merged',
  ];
  return forms.flatMap(form => pack.names(inLast(pack, form)))[0];
}

/** Whether each expert has tensors of its own. */
export function isSeparate(pack: LoosePack): boolean {
  return pack.names(inLast(pack, 'experts\\.5\\.')).length > 0;
}

/** As pruning of experts leaves a model: 8 of 16 are gone, from all that has an entry for each. */
export function prune(pack: LoosePack, parts: { config?: false; router?: false; bias?: false; experts?: false }): void {
  if (parts.config !== false) pack.text[expertField(pack)] = 8;
  for (const name of pack.names(new RegExp(ROUTER))) if (parts.router !== false) pack.cut(name, 8);
  for (const name of pack.names(OF_ROUTER)) if (parts.bias !== false) pack.cut(name, 8);
  if (parts.experts === false) return;
  pack.remove(/experts\.(?:8|9|1\d)\./);
  for (const name of pack.names(FUSED)) pack.cut(name, 8);
}
