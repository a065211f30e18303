/** Final norm and output matrix: hidden rows to logits. */

import { InternalError, NumericError } from '../common/errors.ts';
import type { Tensor } from '../compute/arenas.ts';
import type { Compute, Input } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import { PHASE } from '../telemetry/fields.ts';

/** Generation needs one row; evaluation takes more at a time so that the matrix is read fewer times. */
const MAX_LOGIT_ROWS = 16;

export class LogitsHead {
  readonly maxRows: number;
  readonly #compute: Compute;
  readonly #input: Input; // [maxRows, hidden]
  readonly #logits: Tensor; // [maxRows, vocab]
  #norm!: Tensor;
  #matrix!: Matrix; // [vocab, hidden]
  #eps = 0;

  constructor(compute: Compute, hiddenSize: number, vocabSize: number, rows: number) {
    this.#compute = compute;
    this.maxRows = Math.min(rows, MAX_LOGIT_ROWS);
    this.#input = compute.input(this.maxRows, hiddenSize);
    this.#logits = compute.arenas.tensor(this.maxRows, vocabSize, { replicated: true });
  }

  /** Gives the head its weights; separate because activations are reserved before weights. */
  place(norm: Tensor, matrix: Matrix, eps: number): void {
    this.#norm = norm;
    this.#matrix = matrix;
    this.#eps = eps;
  }

  /** Logits of rows first..first+n-1 of x: [n, vocab], valid until the next call. Throws NON_FINITE_LOGITS. */
  logits(x: Tensor, first: number, n: number): Float32Array {
    if (n > this.maxRows) throw new InternalError('TOO_MANY_LOGIT_ROWS', `${n} rows, at most ${this.maxRows}`);
    const compute = this.#compute;
    compute.clock.enter(PHASE.head);
    const rows: Tensor = { rows: n, columns: x.columns, at: [x.at[0] + first * x.columns * 4] };
    compute.rmsNormInto(rows, this.#norm, this.#eps, this.#input, n);
    compute.linear(this.#matrix, this.#input, this.#logits, n);
    compute.run();
    if (!compute.allFinite(this.#logits, n)) {
      throw new NumericError('NON_FINITE_LOGITS', 'the logits are not finite, though the output of every layer was', {
        hint: 'the final norm or the output matrix may be damaged: compare the files with their source, or convert again',
      });
    }
    compute.clock.enter(PHASE.other);
    return compute.arenas.floats(this.#logits).subarray(0, n * this.#logits.columns);
  }
}
