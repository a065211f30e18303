/** Teacher-forced evaluation of a token sequence: losses, logits, hidden states, choices of routers and indexers. */

import { RequestError } from '../common/errors.ts';
import type { Arenas, Tensor } from '../compute/arenas.ts';
import { assertUnchanged } from '../formats/checkpoint.ts';
import { exp32 } from '../kernels/reference/math.ts';
import { log64 } from '../kernels/scalar.ts';
import type { Observer } from '../models/family.ts';
import type { ScoreRequest, ScoreResult } from './api.ts';
import type { Runtime } from './runtime.ts';
import type { Session } from './session.ts';

/** -log softmax(logits)[target]: float32 exponentials, float64 sum. */
function negativeLogLikelihood(logits: Float32Array, target: number): number {
  let max = Number.NEGATIVE_INFINITY;
  for (let i = 0; i < logits.length; i++) if (logits[i] > max) max = logits[i];
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += exp32(Math.fround(logits[i] - max));
  return log64(sum) - (logits[target] - max);
}

/** Runs `ids` from an empty session and collects what was asked for. */
export function score(runtime: Runtime, session: Session, request: ScoreRequest): ScoreResult {
  const { info, files, model } = runtime;
  const { ids } = request;
  if (ids.length === 0 || ids.length > info.context) {
    throw new RequestError('BAD_SCORE_LENGTH', `${ids.length} tokens; 1 to ${info.context} can be scored`, {
      details: { tokens: ids.length, context: info.context },
    });
  }
  if (request.mtp && model.mtp === null) {
    throw new RequestError('NO_MTP_HEAD', 'the prediction head is not loaded', {
      hint: 'open the engine with mtp: true',
    });
  }
  assertUnchanged(files.checkpoint.files);
  const collected = new Collector(runtime, request);
  session.truncate(0);
  try {
    session.feedAll(
      ids,
      (before, rows, share) => {
        if (share < 1) return;
        for (let first = 0; first < rows; first += model.maxLogitRows) {
          const n = Math.min(model.maxLogitRows, rows - first);
          if (request.nll || request.logits) collected.logits(before + first, model.logits(first, n), n);
        }
        if (request.mtp) predict(runtime, ids, before, rows, collected);
        collected.rowsDone(rows);
      },
      collected.observer,
    );
  } catch (error) {
    // weights that were overwritten explain any other error
    assertUnchanged(files.checkpoint.files);
    throw error;
  } finally {
    runtime.store.settle();
  }
  assertUnchanged(files.checkpoint.files);
  return collected.result;
}

/** What another thread may take over instead of copying it. */
export function largeBuffers({ logits, hidden = [], mtp }: ScoreResult): ArrayBuffer[] {
  return [logits, mtp?.logits, mtp?.hidden, ...hidden].flatMap(array => (array ? [array.buffer as ArrayBuffer] : []));
}

/** Runs the prediction head on the rows of the last pass, which are those from `before` on. */
function predict({ model, batch }: Runtime, ids: readonly number[], before: number, rows: number, to: Collector): void {
  const head = model.mtp!;
  // nothing follows the last token: what its row says is not kept
  const next = Array.from({ length: rows }, (_, row) => ids[before + row + 1] ?? 0);
  head.forward(batch, next);
  const wanted = Math.min(rows, ids.length - 1 - before);
  to.predictedHidden(before, head.hidden, wanted);
  for (let first = 0; first < wanted; first += model.maxLogitRows) {
    const n = Math.min(model.maxLogitRows, wanted - first);
    to.predicted(before + first, head.logits(first, n));
  }
}

class Collector {
  readonly result: ScoreResult = {};
  readonly observer: Observer = {};
  /** Target of each row; undefined for the last one when nothing follows. */
  readonly #targets: readonly (number | undefined)[];
  readonly #vocab: number;
  readonly #arenas: Arenas;
  #done = 0;

  constructor({ info, compute }: Runtime, request: ScoreRequest) {
    const { arenas } = compute;
    this.#arenas = arenas;
    const tokens = request.ids.length;
    this.#targets = [...request.ids.slice(1), request.next];
    this.#vocab = info.vocabSize;
    const perLayer = <T>(make: () => T): T[] => Array.from({ length: info.layers }, make);
    if (request.nll) this.result.nll = new Float64Array(request.next === undefined ? tokens - 1 : tokens);
    if (request.logits) this.result.logits = new Float32Array(tokens * info.vocabSize);
    if (request.mtp) {
      const rows = tokens - 1;
      this.result.mtp = {
        logits: new Float32Array(rows * info.vocabSize),
        hidden: new Float32Array(rows * info.hiddenSize),
      };
    }
    if (request.hidden) {
      const hidden = perLayer(() => new Float32Array(tokens * info.hiddenSize));
      this.result.hidden = hidden;
      this.observer.hidden = (layer, x, n) => this.#copy(arenas.floats(x), hidden[layer], x, n);
    }
    if (request.selected) this.#collectSelected(info.layers);
    if (request.router) {
      const router = perLayer(() => ({
        ids: new Int32Array(tokens * info.topK),
        weights: new Float32Array(tokens * info.topK),
      }));
      this.result.router = router;
      this.observer.router = (layer, ids, weights, n) => {
        this.#copy(arenas.ints(ids), router[layer].ids, ids, n);
        this.#copy(arenas.floats(weights), router[layer].weights, weights, n);
      };
    }
  }

  #collectSelected(layers: number): void {
    const selected = Array.from({ length: layers }, (): Int32Array[] | null => null);
    this.result.selected = selected;
    this.observer.selected = (layer, selection, n) => {
      const rows = (selected[layer] ??= []);
      const words = this.#arenas.ints(selection);
      for (let at = 0; at < n * selection.columns; at += selection.columns) {
        rows.push(words.slice(at + 1, at + 1 + words[at]));
      }
    };
  }

  /** Rows first..first+n-1 of the whole sequence. */
  logits(first: number, values: Float32Array, n: number): void {
    const vocab = this.#vocab;
    this.result.logits?.set(values, first * vocab);
    for (let i = 0; i < n && this.result.nll; i++) {
      const target = this.#targets[first + i];
      if (target === undefined) break;
      const row = values.subarray(i * vocab, (i + 1) * vocab);
      this.result.nll[first + i] = negativeLogLikelihood(row, target);
    }
  }

  /** What the prediction head says for rows first.. of the whole sequence: [n, vocab]. */
  predicted(first: number, logits: Float32Array): void {
    this.result.mtp!.logits.set(logits, first * this.#vocab);
  }

  /** The first n rows of x are rows first.. of the whole sequence. */
  predictedHidden(first: number, x: Tensor, n: number): void {
    this.result.mtp!.hidden.set(this.#arenas.floats(x).subarray(0, n * x.columns), first * x.columns);
  }

  rowsDone(rows: number): void {
    this.#done += rows;
  }

  #copy<T extends Float32Array | Int32Array>(from: T, to: T, tensor: Tensor, n: number): void {
    to.set(from.subarray(0, n * tensor.columns), this.#done * tensor.columns);
  }
}
