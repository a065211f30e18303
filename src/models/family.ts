/**
 * What a model family is: a config schema, tensor names as data, a forward pass built from layers, and what its chat format
 * needs. One file per family, named after its `model_type`; the registry lists them.
 */

import type { FamilyChat } from '../chat/api.ts';
import type { Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import type { ExpertStore } from '../experts/store.ts';
import type { Batch } from '../layers/batch.ts';
import type { Observer } from '../layers/decoder.ts';
import type { StateShape } from '../layers/state.ts';
import type { ExpertNames, LoadStep } from '../quant/refs.ts';

export type { Observer } from '../layers/decoder.ts';

/** The numbers that plans, reports and checks need; the same for every family. */
export interface ModelShape {
  /** Of the main model; layers of the prediction head are numbered after them. */
  readonly layers: number;
  readonly hiddenSize: number;
  readonly vocabSize: number;
  readonly maxContext: number;
  /** Routed experts per MoE layer, how many a token uses, and their width. */
  readonly experts: number;
  readonly topK: number;
  readonly expertWidth: number;
  /** Layers that route, those of the prediction head included when it is asked for. */
  readonly moeLayers: readonly number[];
}

/**
 * What a tensor is for: reports and conversions go by it. `gate`: small matrices that decide how much of something counts, which
 * conversions keep as floats, as they keep routers. `vector`: biases, sinks and the like.
 */
export type DenseRole =
  | 'embedding'
  | 'head'
  | 'attention'
  | 'latent'
  | 'indexer'
  | 'mlp'
  | 'shared'
  | 'router'
  | 'gate'
  | 'norm'
  | 'vector';

/** A resident tensor. Roles `norm` and `vector` are vectors (rows 1), kept as float32 in arena 0; all others are matrices. */
export interface DenseTensor {
  /** How the family asks for it; also its name in the files unless `from` is given. */
  readonly name: string;
  readonly role: DenseRole;
  readonly rows: number;
  readonly columns: number;
  /** Shape in the file, where it is not [rows, columns] or, for a vector, [columns]. */
  readonly stored?: readonly number[];
  /** Name in the file, when several tensors are made of one. */
  readonly from?: string;
  readonly load?: LoadStep;
  /** Part of the prediction head. */
  readonly mtp?: true;
}

/** Vectors are kept as float32 in arena 0; all others are matrices. */
export function isVector({ role }: DenseTensor): boolean {
  return role === 'norm' || role === 'vector';
}

export interface TensorTable {
  readonly dense: readonly DenseTensor[];
  readonly experts: readonly ExpertNames[];
  readonly hiddenSize: number;
  readonly expertWidth: number;
  /** Tensors that published files contain and this forward pass does not need. */
  readonly ignored: readonly RegExp[];
  /**
   * A prediction head that is stored as one more layer: `names` are ignored only where the files have `sign`, which no other layer
   * has. Without it they are a layer that config.json does not count.
   */
  readonly head?: { readonly names: RegExp; readonly sign: string };
}

/** Which parts of a model are wanted. */
export interface Parts {
  /** The multi-token-prediction head, where the config has one (see Family.hasMtp). */
  readonly mtp: boolean;
  /** False: the files have no indexer, and rows attend to all earlier ones (see parts.ts). */
  readonly indexer?: false;
}

/** The multi-token-prediction head: predicts the token after the next. */
export interface PredictionHead {
  /** For the rows of the last forward pass; next[i] is the token that follows row i. */
  forward(batch: Batch, next: ArrayLike<number>): void;
  /** Output of its layer before the final norm: [rows, hidden]. */
  readonly hidden: Tensor;
  logits(first: number, n: number): Float32Array;
}

export interface Model {
  /** Runs rows of a batch through all layers; the final hidden rows stay inside for `logits`. */
  forward(batch: Batch, observer?: Observer): void;
  /** Most rows that one `logits` call takes. */
  readonly maxLogitRows: number;
  /** Logits of rows first..first+n-1 of the last forward: [n, vocab], valid until the next call. */
  logits(first: number, n: number): Float32Array;
  /** Null unless it was asked for. */
  readonly mtp: PredictionHead | null;
}

/** Resident tensors by name; asking for one decides that it will be loaded. */
export interface PlacedWeights {
  /** float32 [1, length] in arena 0. */
  vector(name: string): Tensor;
  /** Reserves a matrix where there is room. */
  matrix(name: string): Matrix;
}

/** Everything a family needs to build its forward pass; nothing here touches memory yet. */
export interface BuildContext extends Parts {
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
  /** Whether checkpoints of this config have a prediction head that this family can run. */
  hasMtp(config: Config): boolean;
  shape(config: Config, parts: Parts): ModelShape;
  tensors(config: Config, parts: Parts): TensorTable;
  /** What a session keeps; layers refer to entries by their number. */
  states(config: Config, parts: Parts): readonly StateShape[];
  /**
   * Reserves activations first and asks for weights then: activations must lie in arena 0, which large matrices may fill.
   */
  build(config: Config, context: BuildContext): Model;
  /** Ids that end a generation according to config.json. */
  eosIds(config: Config): readonly number[];
  /** Strings of the chat format that are not special tokens of the tokenizer. */
  readonly controlStrings: readonly string[];
  readonly chat: FamilyChat;
}
