/**
 * A record is what one load brings into memory: an expert, or one resident tensor. It is a list of page-aligned reads and,
 * for encodings that no kernel reads as they are, a packing step. The table lives in shared memory so that every reader
 * sees it without a copy.
 */

/** Direct reads need file positions, lengths and addresses that are multiples of this. */
export const PAGE = 4096;
/** Node refuses a single read of 2 GiB; longer extents are read in pieces of this size. */
export const MAX_READ_BYTES = 1 << 30;

/** One contiguous stretch of a file that a record needs. */
export interface Extent {
  /** Index into the file table. */
  readonly file: number;
  /** First byte wanted. */
  readonly offset: number;
  readonly bytes: number;
}

/** Turns the raw bytes of a record's extents (in order) into one part of its placed form. */
export interface PackStep {
  /** Name of a function in `quant/pack.ts`. */
  readonly encoding: string;
  readonly rows: number;
  readonly columns: number;
  /** Inputs: [extent index, byte offset inside the extent, bytes]. */
  readonly inputs: readonly (readonly [number, number, number])[];
  /** Where the packed bytes go, relative to the record's destination, and how many there are. */
  readonly target: number;
  readonly bytes: number;
}
