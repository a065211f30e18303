/** Between the grammar service and its worker: messages, and the words by which the service sees what the worker is at. */

import type { ErrorWire } from '../common/errors.ts';
import type { Vocabulary } from './adapter.ts';
import type { ConstraintChannel, GrammarSpec } from './api.ts';

export interface GrammarWorkerData {
  readonly vocabulary: Vocabulary;
  readonly heapBytes: number;
  /** Rung by the engine for new ids, and by the service for a message. */
  readonly doorbell: Int32Array;
  /** BUSY_WORDS words. */
  readonly busy: Int32Array;
  /** For tests. */
  readonly faults?: Faults;
}

/** Texts of literals: the worker hangs or dies at the second mask of one. */
export interface Faults {
  readonly hang?: string;
  readonly crash?: string;
}

export type GrammarCommand =
  | { readonly kind: 'open'; readonly id: number; readonly spec: GrammarSpec; readonly channel: ConstraintChannel }
  | { readonly kind: 'release'; readonly id: number };

export type GrammarReply =
  | { readonly kind: 'opened'; readonly id: number }
  /** Not what the constraint needs; the worker goes on. */
  | { readonly kind: 'refused'; readonly id: number; readonly error: ErrorWire };

/** Which constraint is being worked on; 0 = none. */
export const BUSY_ID = 0;
export const BUSY_PHASE = 1;
/** Counts pieces of work, so that two of the same kind are told apart. */
export const BUSY_COUNT = 2;
export const BUSY_WORDS = 4;

export const LOADING = 0;
export const COMPILING = 1;
export const MASKING = 2;
export const IDLE = 3;
