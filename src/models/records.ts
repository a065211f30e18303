/** Which records a model consists of: one per resident tensor (or piece of a large one) and one per routed expert. */

import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { isTileLayout, layoutBytes, TILE_ROWS } from '../quant/layouts.ts';
import {
  resolveExpert,
  resolveFloatMatrix,
  resolveHeads,
  resolveMatrix,
  resolveRef,
  resolveVector,
} from '../quant/resolve.ts';
import type { StoredRecord } from '../quant/stored.ts';
import { requireComplete, requireKnown } from './census.ts';
import type { DenseTensor, ModelShape, TensorTable } from './family.ts';

export interface ModelRecords {
  readonly records: readonly StoredRecord[];
  /** Resident tensor -> its records, in row order (one, unless it was cut). */
  readonly dense: ReadonlyMap<string, readonly number[]>;
  /** First record of each layer's experts; -1 for layers without. */
  readonly firstExpert: readonly number[];
}

/** Reads the tensor table only. Throws when tensors are absent, unknown to the family, misshapen or in an unknown encoding. */
export function resolveRecords(
  checkpoint: Checkpoint,
  wanted: TensorTable,
  shape: ModelShape,
  maxPieceBytes: number,
): ModelRecords {
  const table = withMadeOnes(checkpoint, wanted);
  requireComplete(checkpoint, table, shape);
  requireKnown(checkpoint, table);
  const records: StoredRecord[] = [];
  const dense = new Map<string, number[]>();
  for (const tensor of table.dense) {
    const pieces = cut(checkpoint, tensor, resolveDense(checkpoint, tensor), maxPieceBytes);
    dense.set(
      tensor.name,
      pieces.map(piece => records.push(piece) - 1),
    );
  }
  const layers = Math.max(shape.layers, ...shape.moeLayers.map(layer => layer + 1));
  const firstExpert = new Array<number>(layers).fill(-1);
  const builds = new Map<string, Build>();
  for (const names of table.experts) {
    if (names.expert === 0) firstExpert[names.layer] = records.length;
    records.push(withSharedBuild(resolveExpert(checkpoint, names, table), builds));
  }
  return { records, dense, firstExpert };
}

type Build = Pick<StoredRecord, 'parts' | 'packs'>;

/** Experts differ in where they lie, hardly ever in how they are built: kept once, tens of thousands of them take little memory. */
function withSharedBuild({ parts, packs, ...own }: StoredRecord, known: Map<string, Build>): StoredRecord {
  const key = JSON.stringify([parts, packs]);
  const build = known.get(key) ?? { parts, packs };
  known.set(key, build);
  return { ...own, ...build };
}

/** What the family makes of another tensor on loading may be in the files already, under its own name, as in GGUF files. */
function withMadeOnes({ tensors }: Checkpoint, table: TensorTable): TensorTable {
  const dense = table.dense.map(({ from, stored, load, ...made }) => {
    if (from !== undefined && tensors.has(made.name)) return made;
    return { ...made, ...(from && { from }), ...(stored && { stored }), ...(load && { load }) };
  });
  return { ...table, dense };
}

/** A resident tensor with whatever is done to it on loading. */
export function resolveDense(checkpoint: Checkpoint, tensor: DenseTensor): StoredRecord {
  const { name, from = name, role, rows, columns, stored, load } = tensor;
  const found = resolveStep(checkpoint, { role, from, rows, columns, stored, load });
  return from === name ? found : { ...found, name };
}

type Step = Pick<DenseTensor, 'role' | 'rows' | 'columns' | 'stored' | 'load'> & { readonly from: string };

function resolveStep(checkpoint: Checkpoint, { role, from, rows, columns, stored, load }: Step): StoredRecord {
  if (role === 'norm' || role === 'vector') {
    return resolveVector(checkpoint, from, columns, { stored, plusOne: load?.step === 'plus-one' });
  }
  if (load !== undefined && load.step !== 'plus-one') return resolveHeads(checkpoint, from, load, rows, columns);
  if (role === 'router') return resolveFloatMatrix(checkpoint, from, rows, columns, { stored });
  return resolveMatrix(checkpoint, from, rows, columns, { stored });
}

/**
 * What is packed goes through a staging area that every reader has. The experts of many models need as much; with whole matrices it
 * could be a gigabyte each.
 */
const MAX_PACKED_PIECE_BYTES = 2 ** 24;

/** Cuts a matrix into pieces of whole row panels that are read, and packed where they must be, each by itself. */
function cut(checkpoint: Checkpoint, tensor: DenseTensor, record: StoredRecord, maxBytes: number): StoredRecord[] {
  const [part] = record.parts;
  if (part.source !== null) return part.fileBytes <= maxBytes ? [record] : cutDirect(record, maxBytes);
  const isPlain = part.rows > 1 && (tensor.load === undefined || tensor.load.step === 'plus-one');
  const most = Math.min(maxBytes, MAX_PACKED_PIECE_BYTES);
  if (!isPlain || maxBytes === Number.POSITIVE_INFINITY || part.fileBytes <= most) return [record];
  const { name, from = name, rows: of, columns } = tensor;
  const step = Math.max(TILE_ROWS, Math.floor((most / part.fileBytes) * (of / TILE_ROWS)) * TILE_ROWS);
  const pieces: StoredRecord[] = [];
  for (let first = 0; first < of; first += step) {
    const rows = Math.min(step, of - first);
    const piece = resolveRef(checkpoint, { name: from, rows: { first, step: 1, of } }, rows, columns);
    pieces.push({ ...piece, name: `${name} rows ${first}-${first + rows - 1}` });
  }
  return pieces;
}

function cutDirect(record: StoredRecord, maxBytes: number): StoredRecord[] {
  const [part] = record.parts;
  const source = part.source!;
  const step = isTileLayout(part.layout) ? TILE_ROWS : 1;
  const stepBytes = layoutBytes(part.layout, step, part.columns);
  const rowsPerPiece = Math.max(1, Math.floor(maxBytes / stepBytes)) * step;
  const pieces: StoredRecord[] = [];
  for (let row = 0; row < part.rows; row += rowsPerPiece) {
    const rows = Math.min(rowsPerPiece, part.rows - row);
    const offset = record.extents[source.extent].offset + source.offset + (row / step) * stepBytes;
    const bytes = layoutBytes(part.layout, rows, part.columns);
    pieces.push({
      name: `${record.name} rows ${row}-${row + rows - 1}`,
      extents: [{ file: record.extents[source.extent].file, offset, bytes }],
      parts: [{ ...part, rows, fileBytes: bytes, source: { extent: 0, offset: 0 } }],
      packs: [],
      sha256: null,
    });
  }
  return pieces;
}
