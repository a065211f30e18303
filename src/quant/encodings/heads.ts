/**
 * kv_b_proj of latent attention, split on loading: per head the key part, transposed, or the value part (LoadStep of refs.ts).
 * The record has one part and a step per head, whose results follow each other.
 */

import type { Checkpoint } from '../../formats/checkpoint-types.ts';
import { layoutBytes } from '../layouts.ts';
import { decodedParams } from '../packers/decoded.ts';
import { mergeRanges, placer } from '../record.ts';
import type { LoadStep } from '../refs.ts';
import type { PackStep, StoredPart, StoredRecord } from '../stored.ts';
import { findMatrix } from './find.ts';
import { extentOf, type MatrixSource } from './source.ts';

export type HeadStep = Extract<LoadStep, { step: 'head-keys' | 'head-values' }>;

/** How one head is made of where it lies; both orders have the same number of bytes. */
type HeadPack = Pick<PackStep, 'packer' | 'rows' | 'columns' | 'params'>;

const FLOATS: readonly string[] = ['f32', 'bf16', 'f16'];

/** `latent`: columns of kv_b_proj. */
export function headsRecord(checkpoint: Checkpoint, name: string, load: HeadStep, latent: number): StoredRecord {
  const { heads, keyDim, valueDim } = load;
  const keys = load.step === 'head-keys';
  const [first, count] = keys ? [0, keyDim] : [keyDim, valueDim];
  const of = heads * (keyDim + valueDim);
  const sources = Array.from({ length: heads }, (_, head) => {
    const rows = { first: head * (keyDim + valueDim) + first, step: 1, of };
    return findMatrix(checkpoint, { name, rows }, count, latent);
  });
  const [{ encoding, layout: stored }] = sources;
  const layout = stored === 'bf16' || stored === 'f16' ? stored : 'f32';
  // a stated hash is that of the whole tensor
  const sha256 = checkpoint.container?.sha256.get(name) ?? null;
  const whole = sha256 === null ? undefined : checkpoint.tensors.get(name);
  const extents = whole ? [extentOf(whole)] : mergeRanges(sources.flatMap(source => source.ranges));
  const place = placer(extents);
  const bytes = layoutBytes(layout, count, latent);
  const packs = sources.map((source, head): PackStep => {
    const inputs = source.ranges.map(range => ({ ...place(range), bytes: range.bytes }));
    return { ...packOf(source, keys), inputs, target: head * bytes, bytes };
  });
  const [rows, columns] = keys ? [heads * latent, keyDim] : [heads * valueDim, latent];
  const fileBytes = sources.reduce((sum, source) => sum + source.fileBytes, 0);
  const parts: StoredPart[] = [{ encoding, layout, rows, columns, fileBytes, source: null }];
  return { name, extents, parts, packs, sha256: whole ? sha256 : null };
}

function packOf({ packer, params, layout, rows, columns }: MatrixSource, turned: boolean): HeadPack {
  if (packer !== null || !FLOATS.includes(layout)) {
    return { packer: 'decoded', rows, columns, params: decodedParams(packer, params, layout, turned) };
  }
  if (!turned) return { packer: 'copy', rows, columns };
  return { packer: 'transpose', rows: columns, columns: rows, params: [layoutBytes(layout, 1, 1), columns, 0, 1] };
}
