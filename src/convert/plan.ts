/** Decides everything before the first write: whatever can be refused is refused here, from headers alone. */

import type { Checkpoint } from '../formats/checkpoint-types.ts';
import type { TensorTable } from '../models/family.ts';
import { resolveRecords } from '../models/records.ts';
import { familyOf } from '../models/registry.ts';
import { isStored } from '../quant/companions.ts';
import { notesOf, planClasses } from './classes.ts';
import { checkDestination, type Destination } from './destination.ts';
import { requireNotBusy } from './lock.ts';
import { planResident, planRouted } from './outputs.ts';
import { requireKnownEncodings } from './roles.ts';
import { peakOf, planShards, sumBytes } from './shards.ts';
import { type ConvertSource, openLocalSource } from './source.ts';
import { newState } from './state.ts';
import type { ConversionPlan, ConvertOptions, PlannedShard } from './types.ts';

/** Small enough to copy and to hash in a minute, large enough that a big model has some hundred files at most. */
const SHARD_BYTES = 4e9;

/** Opens the source if it is a path, resolves every tensor and the destination. Writes nothing. */
export function planConversion(options: ConvertOptions): ConversionPlan {
  const { experts, dense, writer, shardBytes } = parametersOf(options);
  requireKnownEncodings(options);
  const source = sourceOf(options);
  const { checkpoint } = source;
  const family = familyOf(checkpoint.config);
  const config = family.parseConfig(checkpoint.config);
  const mtp = family.hasMtp(config) && hasPrediction(checkpoint, family.tensors(config, { mtp: true }));
  const parts = { mtp };
  const table = family.tensors(config, parts);
  resolveRecords(checkpoint, table, family.shape(config, parts), Number.POSITIVE_INFINITY);

  const resident = planResident(checkpoint, table, options);
  const routed = planRouted(checkpoint, table, family.shape(config, { mtp: false }), options);
  const shards = planShards(resident, routed, shardBytes);
  const classes = planClasses([...resident, ...routed]);
  const weights = classes.reduce((sum, each) => sum + each.weights, 0);
  requireNotBusy(options.destination);
  const notes = notesOf([...resident, ...routed], checkpoint);
  if (family.hasMtp(config) && !mtp) notes.push('config.json names a prediction head, which the files do not have');

  return {
    source: checkpoint.directory,
    repo: source.identity.repo,
    family: family.modelType,
    parts,
    experts,
    dense,
    checkpoint,
    table,
    writer,
    classes,
    shards,
    leftOut: [...checkpoint.tensors.keys()].filter(name => table.ignored.some(pattern => pattern.test(name))),
    notes,
    weights,
    bitsPerWeight: (sumBytes(classes) * 8) / weights,
    totalBytes: sumBytes(shards),
    sourceBytes: checkpoint.bytesOnDisk,
    ...planDestination(options, source, shards),
  };
}

export function sourceOf({ source }: ConvertOptions): ConvertSource {
  return typeof source === 'string' ? openLocalSource(source) : source;
}

/** Files of a variant may come without the head that their config still names. */
function hasPrediction(checkpoint: Checkpoint, { dense }: TensorTable): boolean {
  return dense.some(({ mtp, name, from = name }) => mtp && isStored(checkpoint, from));
}

type DestinationPlan = Destination & Pick<ConversionPlan, 'copied' | 'made' | 'absent' | 'fetchBytes' | 'peakBytes'>;

/** The part of the plan that depends on what lies in the destination: made again once the destination is locked. */
export function planDestination(
  options: ConvertOptions,
  source: ConvertSource,
  shards: readonly PlannedShard[],
): DestinationPlan {
  const { files, absent } = source.companions;
  const smallBytes = files.reduce((sum, { bytes }) => sum + bytes, 0);
  const held = (file: number): number => source.heldBytes(file);
  const fresh = newState(source.identity, parametersOf(options));
  const namesOf = (isMade: boolean): string[] => files.filter(file => file.isMade === isMade).map(({ name }) => name);
  const found = checkDestination(
    options,
    source.checkpoint,
    shards,
    files.map(({ name }) => name),
    fresh,
    rest => peakOf(rest, held) + smallBytes,
  );
  const rest = shards.filter(({ name }) => !found.finishedShards.includes(name));
  const fetched = new Set(rest.flatMap(shard => shard.files));
  const fetchBytes = [...fetched].reduce((sum, file) => sum + held(file) - source.presentBytes(file), 0);
  return {
    copied: namesOf(false),
    made: namesOf(true),
    absent,
    fetchBytes,
    peakBytes: peakOf(shards, held) + smallBytes,
    ...found,
  };
}

/** Everything besides the source that decides the bytes. */
function parametersOf({ experts, dense, writer = 'coli', shardBytes = SHARD_BYTES }: ConvertOptions) {
  return { experts, dense, writer, shardBytes };
}
