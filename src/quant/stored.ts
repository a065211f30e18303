/**
 * How a logical matrix of a family is stored in the files, and how it comes into a kernel layout. `quant/resolve.ts` finds
 * this out from the tensor table; `storage/` turns it into aligned reads.
 */

import type { Layout } from './layouts.ts';

/** One contiguous stretch of a file (any alignment). */
export interface Extent {
  /** Index into `Checkpoint.files`. */
  readonly file: number;
  readonly offset: number;
  readonly bytes: number;
}

/** Turns raw bytes of a record's extents into one matrix in a kernel layout (`PACKERS` of `quant/pack.ts`). */
export interface PackStep {
  readonly packer: string;
  readonly rows: number;
  readonly columns: number;
  /** What the packer says they are; none when absent. */
  readonly params?: readonly number[];
  /** Inputs in the packer's order: a slice of one extent each. */
  readonly inputs: readonly { readonly extent: number; readonly offset: number; readonly bytes: number }[];
  /** Where the result goes, relative to the record's destination. */
  readonly target: number;
  readonly bytes: number;
}

export interface StoredPart {
  /** Name of the encoding in the file, for reports: `bf16`, `q4g64`, `int8-row`, ... */
  readonly encoding: string;
  /** What kernels see. */
  readonly layout: Layout;
  readonly rows: number;
  readonly columns: number;
  /** Bytes in the file, scales included. */
  readonly fileBytes: number;
  /** Direct: where the bytes lie in the extents. Packed: null, the step of the same position in `packs` makes it. */
  readonly source: { readonly extent: number; readonly offset: number } | null;
}

/**
 * One load: a resident tensor has one part, a routed expert three (gate, up, down), or six where it has biases (gate, up,
 * down, then their biases).
 */
export interface StoredRecord {
  /** For messages: a tensor name, or "layer 3 expert 17". */
  readonly name: string;
  readonly extents: readonly Extent[];
  readonly parts: readonly StoredPart[];
  /** Empty when every part is direct; else one step per part, in order (a part that is made of pieces: see resolveHeads). */
  readonly packs: readonly PackStep[];
  /** SHA-256 (hex) of the single extent, when a container states it. */
  readonly sha256: string | null;
}
