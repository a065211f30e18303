/**
 * What a model family is: a config schema, tensor names as data, a forward pass built from layers, and what its chat format
 * needs. One file per family, named after its `model_type`; the registry lists them.
 */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import type { ExpertStore } from '../experts/store.ts';
import type { Batch } from '../layers/batch.ts';
import type { ExpertNames } from '../quant/resolve.ts';

/** The numbers that plans, reports and checks need; the same for every family. */
export interface ModelShape {
  readonly layers: number;
  readonly hiddenSize: number;
  readonly vocabSize: number;
  readonly maxContext: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  /** Routed experts per MoE layer, how many a token uses, and their width. */
  readonly experts: number;
  readonly topK: number;
  readonly expertWidth: number;
  /** Layers that route (all, or fewer when the first ones are dense). */
  readonly moeLayers: readonly number[];
  readonly parameters: number;
}

export type DenseRole = 'embedding' | 'head' | 'attention' | 'router' | 'norm';

/** A resident tensor. Norms are vectors (rows 1). */
export interface DenseTensor {
  readonly name: string;
  readonly role: DenseRole;
  readonly rows: number;
  readonly columns: number;
}

export interface TensorTable {
  readonly dense: readonly DenseTensor[];
  readonly experts: readonly ExpertNames[];
  readonly hiddenSize: number;
  readonly expertWidth: number;
  /** Tensors that published files contain and no forward pass needs. */
  readonly ignored: readonly RegExp[];
}

/** What a forward pass reports when somebody wants to look inside. */
export interface Observer {
  /** Called before each layer; may throw to stop (a cancelled request). */
  beforeLayer?(layer: number): void;
  hidden?(layer: number, x: Tensor, n: number): void;
  router?(layer: number, ids: Tensor, weights: Tensor, n: number): void;
}

export interface Model {
  /** Runs rows of a batch through all layers; the final hidden rows stay inside for `logits`. */
  forward(batch: Batch, observer?: Observer): void;
  /** Most rows that one `logits` call takes. */
  readonly maxLogitRows: number;
  /** Logits of rows first..first+n-1 of the last forward: [n, vocab], valid until the next call. */
  logits(first: number, n: number): Float32Array;
}

/** Resident tensors by name; asking for one decides that it will be loaded. */
export interface PlacedWeights {
  /** float32 [length] in arena 0. */
  vector(name: string): Tensor;
  /** Reserves a matrix where there is room. */
  matrix(name: string): Matrix;
}

/** Everything a family needs to build its forward pass; nothing here touches memory yet. */
export interface BuildContext {
  readonly compute: Compute;
  readonly weights: PlacedWeights;
  readonly experts: ExpertStore;
  /** Most rows of one forward pass. */
  readonly maxRows: number;
  readonly context: number;
}

export interface Family<Config = unknown> {
  readonly modelType: string;
  /** Throws ConfigError with the path of the field. */
  parseConfig(raw: Readonly<Record<string, unknown>>): Config;
  shape(config: Config): ModelShape;
  tensors(config: Config): TensorTable;
  build(config: Config, context: BuildContext): Model;
  /** Ids that end a generation according to config.json. */
  eosIds(config: Config): readonly number[];
  /** Strings of the chat format that are not special tokens of the tokenizer. */
  readonly controlStrings: readonly string[];
}
