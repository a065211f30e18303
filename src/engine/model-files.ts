/** A model directory as the engine sees it: headers read, nothing decided or allocated. */

import { ConfigError, RequestError } from '../common/errors.ts';
import { MAX_ARENA_BYTES } from '../compute/arenas.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { eosField } from '../models/config.ts';
import type { Family, ModelShape, Parts, TensorTable } from '../models/family.ts';
import { openModel } from '../models/open.ts';
import { storedParts } from '../models/parts.ts';
import { type ModelRecords, resolveRecords } from '../models/records.ts';
import { familyOf } from '../models/registry.ts';
import { parameterCount } from '../models/tensors.ts';
import { RecordTable } from '../storage/record-table.ts';
import type { EngineOptions } from './api.ts';

/** What a model directory is, before anything is decided or allocated. */
export interface ModelFiles {
  readonly checkpoint: Checkpoint;
  readonly family: Family;
  readonly config: unknown;
  /** Which parts of the model are wanted. */
  readonly parts: Parts;
  readonly shape: ModelShape;
  /** Without the names of experts, which take more memory than all that is kept of them. */
  readonly tensors: Pick<TensorTable, 'dense'>;
  /** Weights of the model, each tensor once. */
  readonly parameters: number;
  readonly records: ModelRecords;
  readonly table: RecordTable;
  /** Stop ids of generation_config.json. */
  readonly generationEosIds: readonly number[];
}

/** Reads headers only. Throws what is wrong with the files, the config or the tensors. */
export function readModel(
  { model, verify, mtp }: Pick<EngineOptions, 'model' | 'verify' | 'mtp'>,
  arenaBytes: number = MAX_ARENA_BYTES,
): ModelFiles {
  const checkpoint = openModel(model);
  const family = familyOf(checkpoint.config);
  const config = family.parseConfig(checkpoint.config);
  const stored = storedParts(checkpoint, family, config);
  const parts = { ...stored, mtp: mtp ?? false };
  if (parts.mtp && !stored.mtp) {
    throw new RequestError('NO_MTP_HEAD', `${checkpoint.directory} has no prediction head that can be run`, {
      hint: 'leave the option mtp out',
    });
  }
  const shape = family.shape(config, parts);
  const wanted = family.tensors(config, parts);
  // a quarter: large matrices then pack well into arenas; but a piece of a tensor has no hash to be compared with
  const maxPieceBytes = Math.floor(verify ? arenaBytes : arenaBytes / 4);
  const records = resolveRecords(checkpoint, wanted, shape, maxPieceBytes);
  const table = RecordTable.build(records.records, checkpoint.files);
  return {
    checkpoint,
    family,
    config,
    parts,
    shape,
    tensors: { dense: wanted.dense },
    parameters: parameterCount(wanted),
    records,
    table,
    generationEosIds: readGenerationEos(checkpoint),
  };
}

function readGenerationEos({ generationConfig, directory }: Checkpoint): readonly number[] {
  const parsed = eosField.safeParse(generationConfig?.eos_token_id);
  if (parsed.success) return parsed.data;
  throw new ConfigError(
    'BAD_CONFIG',
    `${directory}/generation_config.json: eos_token_id is not an id or a list of ids`,
    {
      hint: 'correct or remove the field',
      details: { path: 'eos_token_id' },
    },
  );
}

/** Numbers of the routed experts in the record table. */
export function expertRecords({ records, shape }: Pick<ModelFiles, 'records' | 'shape'>): Int32Array {
  const firsts = records.firstExpert.filter(first => first >= 0);
  return Int32Array.from(firsts.flatMap(first => Array.from({ length: shape.experts }, (_, e) => first + e)));
}
