/** Which records a model consists of: one per resident tensor (or piece of a large one) and one per routed expert. */

import { ModelFileError } from '../common/errors.ts';
import { countExperts, requireExpertCount, requireTensors } from '../formats/census.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { listNames } from '../formats/files.ts';
import { isTileLayout, layoutBytes, TILE_ROWS } from '../quant/layouts.ts';
import { resolveExpert, resolveFloatMatrix, resolveMatrix, resolveVector } from '../quant/resolve.ts';
import type { StoredRecord } from '../quant/stored.ts';
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
  table: TensorTable,
  shape: ModelShape,
  maxPieceBytes: number,
): ModelRecords {
  requireComplete(checkpoint, table, shape);
  requireKnown(checkpoint, table);
  const records: StoredRecord[] = [];
  const dense = new Map<string, number[]>();
  for (const tensor of table.dense) {
    const pieces = cut(resolveDense(checkpoint, tensor), maxPieceBytes);
    dense.set(
      tensor.name,
      pieces.map(piece => records.push(piece) - 1),
    );
  }
  const firstExpert = new Array<number>(shape.layers).fill(-1);
  for (const names of table.experts) {
    if (names.expert === 0) firstExpert[names.layer] = records.length;
    records.push(resolveExpert(checkpoint, names, table));
  }
  return { records, dense, firstExpert };
}

function resolveDense(checkpoint: Checkpoint, { name, role, rows, columns }: DenseTensor): StoredRecord {
  if (role === 'norm') return resolveVector(checkpoint, name, columns);
  if (role === 'router') return resolveFloatMatrix(checkpoint, name, rows, columns);
  return resolveMatrix(checkpoint, name, rows, columns);
}

/** An expert counts as present under whichever name it is stored. */
function requireComplete(checkpoint: Checkpoint, table: TensorTable, shape: ModelShape): void {
  const { tensors } = checkpoint;
  const prefix = (layer: number) => table.experts.find(e => e.layer === layer)?.gate.replace(/\d+\.[^.]+\.[^.]+$/, '');
  for (const layer of shape.moeLayers) {
    const router = table.dense.find(d => d.role === 'router' && d.name.includes(`.${layer}.`));
    const rows = router && tensors.get(router.name)?.shape[0];
    const found = countExperts(tensors.keys(), prefix(layer) ?? '');
    if (rows === undefined || found === 0) continue;
    requireExpertCount(checkpoint.directory, layer, { config: shape.experts, routerRows: rows, tensors: found });
  }
  const required: string[] = table.dense.map(tensor => tensor.name);
  for (const e of table.experts) {
    if (tensors.has(e.record) || tensors.has(e.merged)) continue;
    required.push(e.gate, e.up, e.down);
  }
  requireTensors(checkpoint.directory, tensors, required);
}

/** Weights that no forward pass would use make it another model: a variant with biases, shared experts, more layers. */
function requireKnown(checkpoint: Checkpoint, table: TensorTable): void {
  const known = new Set(table.dense.map(tensor => tensor.name));
  for (const e of table.experts) {
    for (const name of [e.gate, e.up, e.down, e.record, e.merged, e.mergedScales]) known.add(name);
  }
  const isKnown = (name: string): boolean => known.has(name) || table.ignored.some(pattern => pattern.test(name));
  const unknown = [...checkpoint.tensors.keys()].filter(name => !isKnown(name.replace(/\.qs$/, '')) && !isKnown(name));
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

/** Cuts a matrix that is read as it is into pieces of whole row panels; what needs packing stays whole. */
function cut(record: StoredRecord, maxBytes: number): StoredRecord[] {
  const [part] = record.parts;
  if (part.source === null || part.fileBytes <= maxBytes) return [record];
  const step = isTileLayout(part.layout) ? TILE_ROWS : 1;
  const stepBytes = layoutBytes(part.layout, step, part.columns);
  const rowsPerPiece = Math.max(1, Math.floor(maxBytes / stepBytes)) * step;
  const pieces: StoredRecord[] = [];
  for (let row = 0; row < part.rows; row += rowsPerPiece) {
    const rows = Math.min(rowsPerPiece, part.rows - row);
    const offset = record.extents[part.source.extent].offset + part.source.offset + (row / step) * stepBytes;
    const bytes = layoutBytes(part.layout, rows, part.columns);
    pieces.push({
      name: `${record.name} rows ${row}-${row + rows - 1}`,
      extents: [{ file: record.extents[part.source.extent].file, offset, bytes }],
      parts: [{ ...part, rows, fileBytes: bytes, source: { extent: 0, offset: 0 } }],
      packs: [],
      sha256: null,
    });
  }
  return pieces;
}
