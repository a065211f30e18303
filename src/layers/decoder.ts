/** The skeleton that decoders share: embedding, layers that each add to the residual stream, final norm and output matrix. */

import type { Tensor } from '../compute/arenas.ts';
import type { Selection } from '../compute/attention.ts';
import type { Compute } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import { PHASE } from '../telemetry/fields.ts';
import type { Batch } from './batch.ts';
import { embedTokens } from './embedding.ts';
import { LogitsHead } from './head.ts';

/** What a forward pass reports when somebody wants to look inside. */
export interface Observer {
  /** Called before each layer; may throw to stop (a cancelled request). */
  beforeLayer?(layer: number): void;
  hidden?(layer: number, x: Tensor, n: number): void;
  router?(layer: number, ids: Tensor, weights: Tensor, n: number): void;
  /** The keys that an indexer has chosen for each row. */
  selected?(layer: number, selection: Selection, n: number): void;
}

/** x += mixing of each row with the past of its session: attention or linear attention, its norm included. */
export interface Mixer {
  forward(x: Tensor, batch: Batch, observer?: Observer): void;
}

/** x += what is computed for each row alone: an MLP or routed experts, its norm included. It tells the clock what it does. */
export interface FeedForward {
  forward(x: Tensor, batch: Batch, observer?: Observer): void;
}

export interface DecoderLayer {
  readonly mixer: Mixer;
  readonly feedForward: FeedForward;
}

export interface DecoderWeights {
  readonly embedding: Matrix; // [vocab, hidden]
  readonly norm: Tensor; // [1, hidden]
  readonly head: Matrix; // [vocab, hidden]
}

export class Decoder {
  /** The residual stream. */
  readonly x: Tensor; // [maxRows, hidden]
  readonly head: LogitsHead;
  readonly #compute: Compute;
  #embedding!: Matrix;
  #layers: readonly DecoderLayer[] = [];

  constructor(compute: Compute, shape: { hiddenSize: number; vocabSize: number }, maxRows: number) {
    this.#compute = compute;
    this.x = compute.arenas.tensor(maxRows, shape.hiddenSize, { replicated: true });
    this.head = new LogitsHead(compute, shape.hiddenSize, shape.vocabSize, maxRows);
  }

  get maxLogitRows(): number {
    return this.head.maxRows;
  }

  /** Gives the decoder its weights; separate because activations are reserved before weights. */
  place(weights: DecoderWeights, layers: readonly DecoderLayer[], eps: number): void {
    this.#embedding = weights.embedding;
    this.#layers = layers;
    this.head.place(weights.norm, weights.head, eps);
  }

  forward(batch: Batch, observer?: Observer): void {
    const { clock } = this.#compute;
    clock.enter(PHASE.embed);
    embedTokens(this.#compute, this.#embedding, batch.ids, this.x);
    for (let i = 0; i < this.#layers.length; i++) {
      const { mixer, feedForward } = this.#layers[i];
      clock.enter(PHASE.other);
      observer?.beforeLayer?.(i);
      clock.enter(PHASE.mixer);
      mixer.forward(this.x, batch, observer);
      feedForward.forward(this.x, batch, observer);
      clock.enter(PHASE.other);
      observer?.hidden?.(i, this.x, batch.rows);
      clock.layerEnds(i);
    }
  }

  /** Logits of rows first..first+n-1 of the last forward pass: [n, vocab], valid until the next call. */
  logits(first: number, n: number): Float32Array {
    return this.head.logits(this.x, first, n);
  }
}
