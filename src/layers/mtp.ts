/**
 * Multi-token prediction: one more decoder layer that sees, for every row, the final hidden state of the main model and the
 * embedding of the token that follows, and predicts the token after that one (DeepSeek-V3, GLM-4.5 and later, Qwen3.5).
 */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute, Input } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import { copyHeads, rmsNorm, rmsNormTo } from '../compute/rows.ts';
import type { Batch } from './batch.ts';
import type { DecoderLayer } from './decoder.ts';
import { embedTokens } from './embedding.ts';
import { requireFinite } from './finite.ts';
import { LogitsHead } from './head.ts';

/** Norms are [1, hidden]. */
export interface PredictionWeights {
  readonly embedding: Matrix; // [vocab, hidden]
  /** Final norm of the main model: its hidden states are taken after it. */
  readonly mainNorm: Tensor;
  readonly embeddingNorm: Tensor;
  readonly hiddenNorm: Tensor;
  /** Of [embedding | hidden]. */
  readonly project: Matrix; // [hidden, 2*hidden]
  /** Final norm of the prediction. */
  readonly norm: Tensor;
  readonly head: Matrix; // [vocab, hidden]
}

/** The decoder layer keeps states of its own, at the positions of the rows of the main model. */
export class PredictionLayer {
  /** Output of the decoder layer, before the final norm. */
  readonly hidden: Tensor; // [maxRows, hidden]
  readonly #compute: Compute;
  /** Residual stream of the main model. */
  readonly #main: Tensor; // [maxRows, hidden]
  readonly #normed: Tensor; // [maxRows, hidden]
  readonly #embedded: Tensor; // [maxRows, hidden]
  readonly #joined: Input; // [maxRows, 2*hidden]
  readonly #head: LogitsHead;
  #weights!: PredictionWeights;
  #layer!: DecoderLayer;
  #eps = 0;

  /** main: residual stream of the main model as its last pass left it. */
  constructor(compute: Compute, main: Tensor, vocabSize: number) {
    const { rows, columns } = main;
    const { arenas } = compute;
    this.#compute = compute;
    this.#main = main;
    this.hidden = arenas.tensor(rows, columns, { replicated: true });
    this.#normed = arenas.tensor(rows, columns);
    this.#embedded = arenas.tensor(rows, columns);
    this.#joined = compute.input(rows, 2 * columns);
    this.#head = new LogitsHead(compute, columns, vocabSize, rows);
  }

  /** Gives the layer its weights; separate because activations are reserved before weights. */
  place(weights: PredictionWeights, layer: DecoderLayer, eps: number): void {
    this.#weights = weights;
    this.#layer = layer;
    this.#eps = eps;
    this.#head.place(weights.norm, weights.head, eps);
  }

  /** For the rows of the main model's last pass, which was that of `batch`; next[i]: the token that follows row i. */
  forward(batch: Batch, next: ArrayLike<number>): void {
    const compute = this.#compute;
    const w = this.#weights;
    const n = batch.rows;
    embedTokens(compute, w.embedding, next, this.#embedded);
    rmsNormTo(compute, this.#main, w.mainNorm, this.#eps, this.#normed, n);
    rmsNorm(compute, this.#embedded, w.embeddingNorm, this.#eps, n);
    compute.run();
    rmsNorm(compute, this.#normed, w.hiddenNorm, this.#eps, n);
    compute.run();

    const { columns } = this.hidden;
    const joined = { tensor: this.#joined.x, stride: 2 * columns };
    const whole = (tensor: Tensor) => ({ tensor, stride: columns, first: 0 });
    copyHeads(compute, 1, whole(this.#embedded), { ...joined, first: 0 }, columns, n);
    copyHeads(compute, 1, whole(this.#normed), { ...joined, first: columns }, columns, n);
    compute.run();
    compute.quantise(this.#joined, n);
    compute.linear(w.project, this.#joined, this.hidden, n);
    compute.run();
    requireFinite(compute, this.hidden, n, 'input of the prediction head', null);
    this.#layer.mixer.forward(this.hidden, batch);
    this.#layer.feedForward.forward(this.hidden, batch);
  }

  /** Logits of rows first..first+n-1 of the last `forward`: [n, vocab], valid until the next call. */
  logits(first: number, n: number): Float32Array {
    return this.#head.logits(this.hidden, first, n);
  }
}
