/** What a conversion is asked for, and what was decided before the first byte is written. */

import type { Checkpoint } from '../formats/checkpoint-types.ts';
import type { DenseRole, Parts, TensorTable } from '../models/family.ts';
import type { Layout } from '../quant/layouts.ts';
import type { StoredRecord } from '../quant/stored.ts';
import type { ConvertSource } from './source.ts';
import type { ConvertState } from './state.ts';

/** `source`: as they are, only brought together; nothing is quantised. */
export type ExpertEncoding = 'q4g64' | 'q8' | 'bf16' | 'source';
export type DenseEncoding = 'q8' | 'bf16';

export interface ConvertParameters {
  readonly experts: ExpertEncoding;
  /** Embedding, head, attention, dense MLPs and shared experts; what decides about them is in roles.ts. */
  readonly dense: DenseEncoding;
}

export interface ConvertOptions extends ConvertParameters {
  /** A model directory or a GGUF file, or a source that is open already. */
  readonly source: string | ConvertSource;
  /** A directory that does not exist, is empty, or holds an unfinished conversion of the same source and parameters. */
  readonly destination: string;
  /** Goes into coli.index.json: program and version. */
  readonly writer?: string;
  /** A shard is closed before it grows past this; one layer of experts stays together if it fits. */
  readonly shardBytes?: number;
  /** Threads that encode; the bytes are the same for any number. */
  readonly threads?: number;
  /** Free bytes of the file system that holds a directory. */
  readonly freeBytes?: (directory: string) => number;
  readonly onProgress?: (progress: ConvertProgress) => void;
  /** Stops between tensors; what is finished is kept for the next run. */
  readonly signal?: AbortSignal;
}

/**
 * `verify`: a shard of an earlier run is hashed; `fetch`: a file of the source comes; `write`: a shard is made; `check`: the result
 * is opened again. Bytes are those that are fetched and those that are written, together.
 */
export interface ConvertProgress {
  readonly phase: 'verify' | 'fetch' | 'write' | 'check';
  /** File that is worked on. */
  readonly shard: string;
  readonly doneBytes: number;
  readonly totalBytes: number;
}

/** One matrix of an output tensor and where it comes from. */
export interface PlannedPart {
  readonly role: string;
  readonly layout: Layout;
  readonly rows: number;
  readonly columns: number;
  /** Position in the tensor. */
  readonly offset: number;
  readonly bytes: number;
  readonly record: StoredRecord;
  /** Index into `record.parts`. */
  readonly part: number;
  /** A matrix that may be packed some rows at a time: its tensor. */
  readonly sliceable?: string;
}

export type PlannedRole = DenseRole | 'experts' | 'prediction experts';

/** An output tensor: its parts, then zeros up to `bytes`. */
export interface PlannedTensor {
  readonly name: string;
  readonly role: PlannedRole;
  readonly dtype: 'F32' | 'BF16' | 'F16' | 'U8';
  readonly shape: readonly number[];
  readonly bytes: number;
  readonly parts: readonly PlannedPart[];
  /** Layer of a routed expert; null for resident tensors. */
  readonly layer: number | null;
}

export interface PlannedShard {
  readonly name: string;
  readonly bytes: number;
  readonly tensors: readonly PlannedTensor[];
  /** Files of the source that its tensors are made of, ascending. */
  readonly files: readonly number[];
}

/** One line of the plan as people read it. */
export interface PlannedClass {
  readonly role: PlannedRole;
  readonly tensors: number;
  readonly weights: number;
  /** Encodings in the source, e.g. `bf16`, and in the container. */
  readonly from: string;
  readonly to: string;
  /** Scales and padding included. */
  readonly bitsPerWeight: number;
  readonly bytes: number;
}

export interface ConversionPlan extends ConvertParameters {
  /** A path, or ORG/NAME. */
  readonly source: string;
  /** Of a source on the hub. */
  readonly repo: { readonly id: string; readonly revision: string; readonly commit: string } | null;
  readonly destination: string;
  readonly family: string;
  /** The prediction head is converted too. */
  readonly parts: Parts;
  readonly checkpoint: Checkpoint;
  readonly table: TensorTable;
  readonly writer: string;
  readonly classes: readonly PlannedClass[];
  readonly shards: readonly PlannedShard[];
  /** Small files that are copied, those that are made of a GGUF file's metadata, and usual ones that the source lacks. */
  readonly copied: readonly string[];
  readonly made: readonly string[];
  readonly absent: readonly string[];
  /** Source tensors that no forward pass needs. */
  readonly leftOut: readonly string[];
  /** Things worth knowing before starting, one line each. */
  readonly notes: readonly string[];
  readonly weights: number;
  readonly bitsPerWeight: number;
  /** Size of all output shards, and of the source's. */
  readonly totalBytes: number;
  readonly sourceBytes: number;
  /** What is still to be downloaded. */
  readonly fetchBytes: number;
  /** Most that the destination takes on the disk at any time: output so far and files of the source that are held. */
  readonly peakBytes: number;
  /** What the run starts from: an earlier run's state, or a fresh one. */
  readonly state: ConvertState;
  /** Shards that an earlier run says it finished (their hashes are checked before they are kept). */
  readonly finishedShards: readonly string[];
  /** Free space that the rest needs, and what there is. */
  readonly neededBytes: number;
  readonly freeBytes: number;
}

export interface ConversionReport {
  readonly plan: ConversionPlan;
  /** Finished shards of an earlier run that were kept. */
  readonly kept: readonly string[];
  readonly written: readonly string[];
  readonly bytes: number;
  readonly fetchedBytes: number;
  readonly seconds: number;
}
