/**
 * What a session keeps between tokens, as data: a family lists its states, the session memory holds them, layers refer to them
 * by number.
 */

export type StateShape = RowState | FixedState;

/**
 * One row per token, in blocks of KV_BLOCK tokens: keys and values, latents, keys of an indexer. Forgetting the last tokens is free. With a
 * window only so many of the latest tokens are needed, and kept.
 */
export interface RowState {
  readonly kind: 'rows';
  readonly keyColumns: number;
  /** 0 when there are no values, or when they are part of the keys. */
  readonly valueColumns: number;
  /** Tokens that a query sees, itself included; 0 = all. */
  readonly window: number;
}

/** So many float32 whatever the number of tokens: recurrent matrices, the last inputs of a convolution. Zero before the first token. */
export interface FixedState {
  readonly kind: 'fixed';
  readonly floats: number;
}

/** Where a layer stands in the model: its number for messages, and the number of its first state. */
export interface LayerPlace {
  readonly layer: number;
  readonly state: number;
}
