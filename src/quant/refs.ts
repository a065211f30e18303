/** What a family asks for: matrices and vectors by the names that published files have, and what is done to them on loading. */

/** A matrix in the files: a tensor, or a part of one. Its scales, where its encoding has some, are found by their names. */
export interface MatrixRef {
  readonly name: string;
  /** The tensor is [of, ...]: the one matrix (or row, for a vector) of it. */
  readonly slice?: { readonly index: number; readonly of: number };
  /** Rows first, first + step, ... of the `of` rows that the matrix has in the file: gate and up of a joint tensor. */
  readonly rows?: { readonly first: number; readonly step: number; readonly of: number };
  /** The file has [columns, rows] (and `rows` then selects columns of it). */
  readonly transposed?: boolean;
}

/** One way in which the matrices of an expert may be stored: gate and up [expertWidth, hidden], down [hidden, expertWidth]. */
export interface ExpertForm {
  readonly gate: MatrixRef;
  readonly up: MatrixRef;
  readonly down: MatrixRef;
  /** Vectors [expertWidth], [expertWidth], [hidden], for families whose experts have biases. */
  readonly biases?: { readonly gate: MatrixRef; readonly up: MatrixRef; readonly down: MatrixRef };
}

/** The names under which a routed expert may be stored. */
export interface ExpertNames {
  readonly layer: number;
  readonly expert: number;
  /** Of our own container: one U8 tensor with all parts. */
  readonly record: string;
  /** Of the C engine's OLMoE container: one I8 tensor with all three matrices, and their scales. */
  readonly merged?: { readonly weights: string; readonly scales: string };
  /** As published, the most common form first. Exactly one of them (or `record`, or `merged`) must be there. */
  readonly forms: readonly ExpertForm[];
}

/**
 * What is done to a resident tensor on loading. plus-one: a vector w becomes 1 + w (zero-centred norms). head-keys and
 * head-values: kv_b_proj [heads*(keyDim + valueDim), latent] becomes, per head, the transposed key part [heads*latent, keyDim] or the
 * value part [heads*valueDim, latent], in a float layout (bf16 and f16 stay, every other encoding becomes float32).
 */
export type LoadStep =
  | { readonly step: 'plus-one' }
  | {
      readonly step: 'head-keys' | 'head-values';
      readonly heads: number;
      readonly keyDim: number;
      readonly valueDim: number;
    };
