/**
 * Gated DeltaNet: linear attention whose memory of the past is one matrix per head, changed by the delta rule with every token, after a
 * short convolution. Token after token, whatever the number of rows, and parallel over channels and heads.
 */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute, Input } from '../compute/compute.ts';
import { convSilu, type DecayRates, type DeltaShape, deltaGates, deltaRule } from '../compute/delta.ts';
import type { Matrix } from '../compute/matrix.ts';
import { add, rmsNormHeads } from '../compute/rows.ts';
import { DELTA_SCRATCH } from '../kernels/kernels.ts';
import type { Batch } from './batch.ts';
import type { Mixer } from './decoder.ts';
import { requireFinite } from './finite.ts';
import type { FixedState, LayerPlace } from './state.ts';

/** Elements of the longest head; published models have 128. */
export const MAX_DELTA_HEAD_DIM = Math.floor(DELTA_SCRATCH / 3);

export interface DeltaNetShape extends DeltaShape {
  readonly hiddenSize: number;
  /** Tokens that the convolution sees, the current one included. */
  readonly taps: number;
  readonly normEps: number;
}

/** Columns of the convolution: queries and keys of the key heads, values of the value heads. */
export function deltaChannels({ keyHeads, valueHeads, keyDim, valueDim }: DeltaShape): number {
  return 2 * keyHeads * keyDim + valueHeads * valueDim;
}

/** What a layer keeps of a session: its matrices [valueHeads, keyDim, valueDim], and the convolution's last inputs. */
export function deltaStates(shape: DeltaNetShape): readonly [matrix: FixedState, tail: FixedState] {
  const { valueHeads, keyDim, valueDim, taps } = shape;
  return [
    { kind: 'fixed', floats: valueHeads * keyDim * valueDim },
    { kind: 'fixed', floats: (taps - 1) * deltaChannels(shape) },
  ];
}

/** Vectors are [1, length]. */
export interface DeltaNetWeights {
  readonly inputNorm: Tensor;
  readonly qkv: Matrix; // [channels, hidden]
  readonly z: Matrix; // [valueHeads*valueDim, hidden]
  readonly a: Matrix; // [valueHeads, hidden]
  readonly b: Matrix; // [valueHeads, hidden]
  readonly conv: Tensor; // [1, channels*taps], the taps of a channel side by side, the oldest first
  readonly rates: DecayRates; // [1, valueHeads]
  readonly dtBias: Tensor; // [1, valueHeads]
  readonly norm: Tensor; // [1, valueDim]
  readonly out: Matrix; // [hidden, valueHeads*valueDim]
}

/** Activations that all layers of a model share. */
export class DeltaNetWorkspace {
  readonly input: Input; // [rows, hidden]
  readonly u: Tensor; // [rows, channels]
  readonly qkv: Tensor; // [rows, channels]
  readonly a: Tensor; // [rows, valueHeads]
  readonly b: Tensor; // [rows, valueHeads]
  readonly mixed: Tensor; // [rows, valueHeads*valueDim]
  /** Its rows are z until the gate is applied to them. */
  readonly output: Input; // [rows, valueHeads*valueDim]
  readonly projected: Tensor; // [rows, hidden]

  constructor(compute: Compute, shape: DeltaNetShape, rows: number) {
    const { arenas } = compute;
    const replicated = { replicated: true };
    const channels = deltaChannels(shape);
    const columns = shape.valueHeads * shape.valueDim;
    this.input = compute.input(rows, shape.hiddenSize);
    this.u = arenas.tensor(rows, channels, replicated);
    this.qkv = arenas.tensor(rows, channels);
    this.a = arenas.tensor(rows, shape.valueHeads, replicated);
    this.b = arenas.tensor(rows, shape.valueHeads, replicated);
    this.mixed = arenas.tensor(rows, columns);
    this.output = compute.input(rows, columns);
    this.projected = arenas.tensor(rows, shape.hiddenSize, replicated);
  }
}

export class DeltaNet implements Mixer {
  readonly #compute: Compute;
  readonly #place: LayerPlace;
  readonly #shape: DeltaNetShape;
  readonly #weights: DeltaNetWeights;
  readonly #work: DeltaNetWorkspace;

  constructor(
    compute: Compute,
    place: LayerPlace,
    shape: DeltaNetShape,
    weights: DeltaNetWeights,
    work: DeltaNetWorkspace,
  ) {
    this.#compute = compute;
    this.#place = place;
    this.#shape = shape;
    this.#weights = weights;
    this.#work = work;
  }

  forward(x: Tensor, batch: Batch): void {
    const compute = this.#compute;
    const { mixed, output, projected } = this.#work;
    const w = this.#weights;
    const n = batch.rows;

    this.#project(x, n);
    this.#mix(batch);
    rmsNormHeads(compute, mixed, w.norm, this.#shape.normEps, this.#shape.valueDim, n);
    compute.run();
    output.version++;
    compute.swigluInto(output, mixed, 0, n);
    compute.run();

    compute.linear(w.out, output, projected, n);
    compute.run();
    add(compute, x, projected, n);
    compute.run();
    requireFinite(compute, x, n, 'linear attention', this.#place.layer);
  }

  /** Inputs of the convolution, gates and z of normalised rows. */
  #project(x: Tensor, n: number): void {
    const compute = this.#compute;
    const { input, u, a, b, output } = this.#work;
    const w = this.#weights;
    compute.rmsNormInto(x, w.inputNorm, this.#shape.normEps, input, n);
    compute.linear(w.qkv, input, u, n);
    compute.linear(w.z, input, output.x, n);
    compute.linear(w.a, input, a, n);
    compute.linear(w.b, input, b, n);
    compute.run();
    // what they become of infinities are ordinary numbers
    const { layer } = this.#place;
    for (const gate of [a, b]) requireFinite(compute, gate, n, 'gates of the linear attention', layer);
    for (const rate of [w.rates.values, w.dtBias])
      requireFinite(compute, rate, 1, 'rates of the linear attention', layer);
    deltaGates(compute, a, b, w.rates, w.dtBias, n);
  }

  /** Convolution and delta rule over the tokens of each session. The first job also has the gates. */
  #mix(batch: Batch): void {
    const compute = this.#compute;
    const { u, qkv, a, b, mixed } = this.#work;
    const { state } = this.#place;
    const segments = Array.from({ length: batch.segmentCount }, (_, segment) => ({
      firstRow: batch.firstRow(segment),
      rows: batch.rowsOf(segment),
    }));
    segments.forEach((rows, segment) => {
      const tail = batch.fixedAddress(state + 1, segment);
      convSilu(compute, u, tail, this.#weights.conv, this.#shape.taps, qkv, rows);
    });
    compute.run();
    segments.forEach((rows, segment) => {
      deltaRule(compute, qkv, a, b, batch.fixedAddress(state, segment), mixed, this.#shape, rows);
    });
    compute.run();
  }
}
