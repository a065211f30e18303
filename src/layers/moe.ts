/**
 * Routed experts of one layer for all rows of a batch: each distinct expert is asked for once, experts in memory compute
 * while missing ones load, and every (row, slot) output is kept until the sum is taken in slot order. So the order in which
 * experts arrive, and how many slots there are, cannot show in the result.
 */

import { NumericError } from '../common/errors.ts';
import type { Tensor } from '../compute/arenas.ts';
import type { Clamped, Compute, Input } from '../compute/compute.ts';
import { addRowsAt, combine } from '../compute/rows.ts';
import type { ExpertStore } from '../experts/store.ts';
import { PHASE } from '../telemetry/fields.ts';
import { requireFinite } from './finite.ts';
import { type KnownExperts, LOOK_AHEAD_ROWS, type LookAhead } from './look-ahead.ts';
import type { SharedExpert } from './mlp.ts';
import type { RouterWorkspace, Routing } from './router.ts';

/** Reading the next layer ahead starts when a batch is expected to touch at least this share of its experts. */
const READ_AHEAD_SHARE = 0.95;

export interface MoeShape {
  readonly hiddenSize: number;
  readonly expertWidth: number;
  readonly experts: number;
  readonly topK: number;
  /** Instead of silu(gate) * up, as gpt-oss: see the kernel swigluClamped. */
  readonly clamped: Clamped | null;
  /** Experts have vectors that are added to gate, up and down. */
  readonly biases: boolean;
}

/** Parts of an expert record. */
const GATE = 0;
const UP = 1;
const DOWN = 2;
/** The vector that belongs to a matrix. */
const BIAS_OF = 3;

/** Activations that all MoE layers of a model share. Each arena computes the experts that lie in it. */
export class MoeWorkspace implements RouterWorkspace {
  readonly input: Input; // [rows, hidden]
  readonly scores: Tensor; // [rows, experts]
  readonly routing: Routing;
  /** (row, slot) outputs, [rows*topK, hidden], arena 0. */
  readonly parts: Tensor;
  /** A wave: up to `waveRows` (row, slot) pairs of some experts. */
  readonly waveRows: number;
  readonly hidden: Input; // [waveRows, width]: gate, then silu(gate)*up
  readonly up: Tensor; // [waveRows, width]
  readonly down: Tensor; // [waveRows, hidden], where outputs cannot go straight to `parts`
  readonly inputRows: Tensor; // i32 [waveRows]
  readonly partRows: Tensor; // i32 [waveRows]

  constructor(compute: Compute, shape: MoeShape, rows: number) {
    const { arenas } = compute;
    const replicated = { replicated: true };
    this.input = compute.input(rows, shape.hiddenSize);
    this.scores = arenas.tensor(rows, shape.experts, replicated);
    this.routing = { ids: arenas.tensor(rows, shape.topK), weights: arenas.tensor(rows, shape.topK) };
    this.parts = arenas.tensor(rows * shape.topK, shape.hiddenSize);
    this.waveRows = Math.max(rows, shape.topK);
    this.hidden = compute.input(this.waveRows, shape.expertWidth);
    this.up = arenas.tensor(this.waveRows, shape.expertWidth, replicated);
    this.down = arenas.tensor(this.waveRows, shape.hiddenSize, replicated);
    this.inputRows = arenas.tensor(this.waveRows, 1, replicated);
    this.partRows = arenas.tensor(this.waveRows, 1, replicated);
  }
}

export class RoutedExperts {
  readonly #compute: Compute;
  readonly #store: ExpertStore;
  readonly #shape: MoeShape;
  readonly #work: MoeWorkspace;
  readonly #layer: number;
  readonly #nextLayer: number | null;
  readonly #lookAhead: LookAhead | null;
  readonly #shared: SharedExpert | null;
  // pairs sorted by expert: expert e owns #pairs[#start[e] .. #start[e+1])
  readonly #start: Int32Array;
  readonly #pairs: Int32Array;
  readonly #distinct: Int32Array;
  /** Pairs of each distinct expert. */
  readonly #uses: Int32Array;
  /** Positions of the current wave. */
  readonly #wave: Int32Array;
  /** Outputs that are there before the first wait, where rows are few. */
  readonly #known: KnownExperts;

  constructor(
    compute: Compute,
    store: ExpertStore,
    layer: number,
    nextLayer: number | null,
    shape: MoeShape,
    work: MoeWorkspace,
    rows: number,
    lookAhead: LookAhead | null,
    shared: SharedExpert | null = null,
  ) {
    this.#compute = compute;
    this.#store = store;
    this.#shape = shape;
    this.#work = work;
    this.#layer = layer;
    this.#nextLayer = nextLayer;
    this.#lookAhead = lookAhead;
    this.#shared = shared;
    this.#start = new Int32Array(shape.experts + 2);
    this.#pairs = new Int32Array(rows * shape.topK);
    this.#distinct = new Int32Array(shape.experts);
    this.#uses = new Int32Array(shape.experts);
    this.#wave = new Int32Array(shape.experts);
    const isKnown = new Uint8Array(LOOK_AHEAD_ROWS * shape.topK);
    this.#known = { shared: null, parts: work.parts, weights: work.routing.weights, isKnown };
  }

  /** x += (sum over slots of weight * expert(input row)) + shared expert, for n rows. */
  forward(x: Tensor, input: Input, routing: Routing, n: number): void {
    const distinct = this.#sortByExpert(routing, n);
    const store = this.#store;
    store.begin(this.#layer, this.#distinct, this.#uses, distinct);
    let shared: Tensor | null = null;
    try {
      if (this.#nextLayer !== null && this.#touchesNearlyAll(n)) store.readAhead(this.#nextLayer);
      // while experts are read
      const { clock } = this.#compute;
      if (this.#shared) {
        clock.enter(PHASE.shared);
        shared = this.#shared.forward(input, n, this.#layer);
        clock.enter(PHASE.experts);
      }
      if (this.#lookAhead?.isWanted(n)) this.#guess(this.#lookAhead, x, input, shared, n);
      for (let ready = store.next(); ready > 0; ready = store.next()) this.#computeReady(input, n, ready);
    } finally {
      store.end();
    }
    combine(this.#compute, x, this.#work.parts, routing.weights, this.#shape.topK, shared, n);
    this.#compute.run();
    if (!this.#compute.allFinite(x, n)) this.#reportNonFinite(routing, shared, n);
  }

  /** Looks ahead with the outputs of experts in memory, if there are others to wait for: the disk is busy until those have come. */
  #guess(lookAhead: LookAhead, x: Tensor, input: Input, shared: Tensor | null, n: number): void {
    const { clock } = this.#compute;
    const store = this.#store;
    this.#known.isKnown.fill(0);
    const ready = store.next(false);
    const { isWaiting } = store;
    if (isWaiting) this.#computeReady(input, n, ready);
    clock.enter(PHASE.guess);
    this.#known.shared = shared;
    lookAhead.run(x, this.#known, n);
    clock.enter(PHASE.experts);
    if (!isWaiting) this.#computeReady(input, n, ready);
  }

  /** Counting sort of the (row, slot) pairs; returns how many distinct experts there are. */
  #sortByExpert(routing: Routing, n: number): number {
    const ids = this.#compute.arenas.ints(routing.ids);
    const { experts, topK } = this.#shape;
    const start = this.#start;
    start.fill(0);
    for (let pair = 0; pair < n * topK; pair++) start[ids[pair] + 2]++;
    for (let e = 1; e <= experts; e++) start[e + 1] += start[e];
    for (let pair = 0; pair < n * topK; pair++) this.#pairs[start[ids[pair] + 1]++] = pair;
    let distinct = 0;
    for (let e = 0; e < experts; e++) {
      if (start[e + 1] === start[e]) continue;
      this.#uses[distinct] = start[e + 1] - start[e];
      this.#distinct[distinct++] = e;
    }
    return distinct;
  }

  /** Uniform routing touches 1 - (1 - k/E)^n of the experts. */
  #touchesNearlyAll(n: number): boolean {
    const { experts, topK } = this.#shape;
    let untouched = 1;
    for (let i = 0; i < n && untouched > 1 - READ_AHEAD_SHARE; i++) untouched *= 1 - topK / experts;
    return untouched <= 1 - READ_AHEAD_SHARE;
  }

  /** Computes the experts at store.ready[0..count) in waves of one arena and at most waveRows pairs. */
  #computeReady(input: Input, n: number, count: number): void {
    const store = this.#store;
    for (let arena = 0; arena < this.#compute.arenas.count; arena++) {
      let experts = 0;
      let rows = 0;
      for (let i = 0; i < count; i++) {
        const position = store.ready[i];
        if (store.arenaOf(position) !== arena) continue;
        const pairs = this.#pairCount(position);
        if (rows + pairs > this.#work.waveRows) {
          this.#computeWave(input, n, arena, experts, rows);
          experts = 0;
          rows = 0;
        }
        this.#wave[experts++] = position;
        rows += pairs;
      }
      if (experts > 0) this.#computeWave(input, n, arena, experts, rows);
    }
    for (let i = 0; i < count; i++) {
      if (n <= LOOK_AHEAD_ROWS) this.#noteKnown(store.ready[i]);
      store.release(store.ready[i]);
    }
  }

  #noteKnown(position: number): void {
    const expert = this.#distinct[position];
    for (let p = this.#start[expert]; p < this.#start[expert + 1]; p++) this.#known.isKnown[this.#pairs[p]] = 1;
  }

  #pairCount(position: number): number {
    return this.#uses[position];
  }

  #computeWave(input: Input, n: number, arena: number, experts: number, rows: number): void {
    const compute = this.#compute;
    const { hidden, up, down, parts, inputRows, partRows } = this.#work;
    const { hiddenSize, expertWidth, biases } = this.#shape;
    this.#listRows(arena, experts);

    for (let i = 0, first = 0; i < experts; i++) {
      const pairs = this.#pairCount(this.#wave[i]);
      const index = inputRows.at[arena] + first * 4;
      const gateAt = hidden.x.at[arena] + first * expertWidth * 4;
      const upAt = up.at[arena] + first * expertWidth * 4;
      compute.stage(input, arena, this.#store.shape(this.#wave[i], GATE), n);
      this.#matmul(this.#wave[i], GATE, arena, input, 0, index, gateAt, expertWidth, 0, pairs);
      this.#matmul(this.#wave[i], UP, arena, input, 0, index, upAt, expertWidth, 0, pairs);
      first += pairs;
    }
    compute.run();
    if (biases) {
      this.#addBiases(GATE, arena, hidden.x, experts);
      this.#addBiases(UP, arena, up, experts);
      compute.run();
    }
    // a clamp would make an infinity an ordinary number
    if (this.#shape.clamped !== null) this.#requireFiniteWave(arena, experts, rows);
    compute.swigluInto(hidden, up, arena, rows, this.#shape.clamped);
    compute.run();
    // in arena 0 outputs go straight to their (row, slot); elsewhere, or when something is added, they are collected first
    const collect = arena !== 0 || biases;
    for (let i = 0, first = 0; i < experts; i++) {
      const pairs = this.#pairCount(this.#wave[i]);
      if (collect) {
        const y = down.at[arena] + first * hiddenSize * 4;
        this.#matmul(this.#wave[i], DOWN, arena, hidden, first, 0, y, hiddenSize, 0, pairs);
      } else {
        const index = partRows.at[0] + first * 4;
        this.#matmul(this.#wave[i], DOWN, 0, hidden, first, 0, parts.at[0], hiddenSize, index, pairs);
      }
      first += pairs;
    }
    compute.run();
    if (biases) {
      this.#addBiases(DOWN, arena, down, experts);
      compute.run();
    }
    if (collect) this.#copyHome(arena, rows);
  }

  /** Rows of y, which belong to the experts of the wave one after the other, += the bias of their expert. */
  #addBiases(part: number, arena: number, y: Tensor, experts: number): void {
    for (let i = 0, first = 0; i < experts; i++) {
      const pairs = this.#pairCount(this.#wave[i]);
      const bias = this.#store.addressOf(this.#wave[i], part + BIAS_OF);
      addRowsAt(this.#compute, arena, y.at[arena] + first * y.columns * 4, bias, y.columns, pairs);
      first += pairs;
    }
  }

  #matmul(
    position: number,
    part: number,
    arena: number,
    input: Input,
    firstRow: number,
    xIndex: number,
    y: number,
    yStride: number,
    yIndex: number,
    n: number,
  ): void {
    const w = this.#store.shape(position, part);
    const offset = this.#store.addressOf(position, part);
    this.#compute.matmul(w, arena, offset, w.rows, input, firstRow, xIndex, y, yStride, yIndex, n);
  }

  /** Writes which input row and which (row, slot) each pair of the wave has. */
  #listRows(arena: number, experts: number): void {
    const inputRows = this.#compute.arenas.ints(this.#work.inputRows, arena);
    const partRows = this.#compute.arenas.ints(this.#work.partRows, arena);
    let at = 0;
    for (let i = 0; i < experts; i++) {
      const expert = this.#distinct[this.#wave[i]];
      for (let p = this.#start[expert]; p < this.#start[expert + 1]; p++, at++) {
        partRows[at] = this.#pairs[p];
        inputRows[at] = Math.floor(this.#pairs[p] / this.#shape.topK);
      }
    }
  }

  #copyHome(arena: number, rows: number): void {
    const { arenas } = this.#compute;
    const { hiddenSize } = this.#shape;
    const from = arenas.floats(this.#work.down, arena);
    const to = arenas.floats(this.#work.parts);
    const partRows = arenas.ints(this.#work.partRows, arena);
    for (let i = 0; i < rows; i++) {
      to.set(from.subarray(i * hiddenSize, (i + 1) * hiddenSize), partRows[i] * hiddenSize);
    }
  }

  /** Gate and up of a wave, whose rows follow each other expert by expert. */
  #requireFiniteWave(arena: number, experts: number, rows: number): void {
    const tensors = [this.#work.hidden.x, this.#work.up];
    const areFinite = (n: number, first: number) => tensors.every(x => this.#compute.allFinite(x, n, arena, first));
    if (areFinite(rows, 0)) return;
    for (let i = 0, first = 0; i < experts; i++) {
      const pairs = this.#pairCount(this.#wave[i]);
      if (!areFinite(pairs, first)) throw this.#nonFinite(this.#distinct[this.#wave[i]]);
      first += pairs;
    }
  }

  #nonFinite(expert: number): NumericError {
    return new NumericError('NON_FINITE', `layer ${this.#layer}, expert ${expert} gave a value that is not finite`, {
      hint: 'the weights or scales of this expert may be damaged; run again with --verify or convert the model anew',
      details: { layer: this.#layer, expert },
    });
  }

  #reportNonFinite(routing: Routing, shared: Tensor | null, n: number): never {
    const { hiddenSize, topK } = this.#shape;
    const parts = this.#compute.arenas.floats(this.#work.parts);
    const ids = this.#compute.arenas.ints(routing.ids);
    for (let pair = 0; pair < n * topK; pair++) {
      const part = parts.subarray(pair * hiddenSize, (pair + 1) * hiddenSize);
      if (!part.every(Number.isFinite)) throw this.#nonFinite(ids[pair]);
    }
    if (shared) requireFinite(this.#compute, shared, n, 'shared expert', this.#layer);
    throw new NumericError(
      'NON_FINITE',
      `the sum of the experts of layer ${this.#layer} is not finite, though each is`,
      {
        hint: 'the values of this layer exceed float32: compare the weights with their source',
        details: { layer: this.#layer },
      },
    );
  }
}
