/** Parts of a model that its files may lack although the config names them. */

import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { isStored } from '../quant/companions.ts';
import type { Family, Parts } from './family.ts';

/**
 * What the files have. Containers of the C engine leave out the indexer; without one every row attends to all earlier ones, which is
 * the same up to as many tokens as the indexer would select. Exports often leave out the prediction head.
 */
export function storedParts<Config>(checkpoint: Checkpoint, family: Family<Config>, config: Config): Parts {
  const { dense } = family.tensors(config, { mtp: family.hasMtp(config) });
  const isThere = (tensors: typeof dense) => tensors.some(({ name, from = name }) => isStored(checkpoint, from));
  const indexer = dense.filter(({ role }) => role === 'indexer');
  const withoutIndexer = indexer.length > 0 && !isThere(indexer) ? { indexer: false as const } : {};
  return { mtp: isThere(dense.filter(({ mtp }) => mtp)), ...withoutIndexer };
}
