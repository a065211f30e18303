/** The writing side of telemetry. It belongs to the engine's thread, allocates nothing in a step, and waits for nobody. */

import type { LayerListener, PhaseClock } from './clock.ts';
import { type EventKind, MAX_DRIVES, PHASE, PHASES, WORK_AT, WORK_COUNT } from './fields.ts';
import { observe } from './histogram.ts';
import {
  type HistogramName,
  LAST_VERSION,
  STEP_WORDS,
  SUMS_VERSION,
  type SumsLayout,
  sumsLayout,
  type TelemetryShared,
  viewTelemetry,
} from './memory.ts';
import { RingWriter } from './ring.ts';

/** Writes counters that only grow at the positions WORK_AT, times and rows apart. */
export type Sample = (into: Float64Array) => void;

/** A request under way: what the sums were when it began. */
export type RequestMark = Float64Array;

const PROMPT = 0;
const DECODE = 1;
const FIRST_PHASE = WORK_AT[`${PHASES[0]}Us`];
const { rows: ROWS, requests: REQUESTS, waitUs: WAIT, totalUs: TOTAL, reads: READS, readBytes: READ_BYTES } = WORK_AT;
const EXPERTS_US = WORK_AT['expertsUs'];
const DRIVE0 = WORK_AT['drive0Bytes'];
/** Fields that are differences of a sample: all between the rows and the phases. */
const FIRST_SAMPLED = ROWS + 1;
/** Looking at a layer and its phases takes about so long; a step takes at most this share longer for it, on average. */
const LAYER_COST_US = 0.7;
const MAX_COST_SHARE = 0.002;
const MAX_SKIPS = 1000;
/** Between two copies of which expert is where. */
const TIERS_EVERY_MS = 250;

export class Recorder implements LayerListener {
  readonly shared: TelemetryShared;
  readonly #clock: PhaseClock;
  readonly #sample: Sample;
  readonly #layout: SumsLayout;
  readonly #view: ReturnType<typeof viewTelemetry>;
  readonly #ring: RingWriter;
  /** The sample at the last boundary, and the one that is taken. */
  #before = new Float64Array(WORK_COUNT);
  #now = new Float64Array(WORK_COUNT);
  /** What lies between the two. */
  readonly #work = new Float64Array(WORK_COUNT);
  readonly #layers: Float64Array;
  readonly #step = new Float64Array(STEP_WORDS - 1);
  readonly #arrived = new Float64Array(1 + MAX_DRIVES);
  #stepNumber = 0;
  #inStep = false;
  #isDetailed = false;
  /** Looks at the layers and phases of every step, whatever that costs. */
  everyStep = false;
  /** Steps of each mode that are not looked at before the next one is. */
  readonly #skips = new Int32Array(2);
  #begunMs = 0;
  #promptRows = 0;
  #decodeRows = 0;
  #requests = 0;
  #ended: RequestMark[] = [];
  #tiersMs = Number.NEGATIVE_INFINITY;
  readonly #openedMs = performance.now();

  constructor(shared: TelemetryShared, clock: PhaseClock, sample: Sample) {
    this.shared = shared;
    this.#clock = clock;
    this.#sample = sample;
    this.#layout = sumsLayout(shared);
    this.#view = viewTelemetry(shared);
    this.#ring = new RingWriter(shared.buffer, this.#view.ringAt);
    this.#layers = new Float64Array(shared.layers * WORK_COUNT);
    clock.listener = this;
    this.#take();
  }

  // ---- steps --------------------------------------------------------------------------------------------------------

  /** A forward pass begins. */
  stepBegins(promptRows: number, decodeRows: number): void {
    this.#take();
    if (this.#work[READ_BYTES] > 0 || this.#work[REQUESTS] > 0) this.#event('outside', -1, this.#work, WORK_COUNT);
    this.#stepNumber++;
    this.#promptRows = promptRows;
    this.#decodeRows = decodeRows;
    this.#step.fill(0);
    this.#inStep = true;
    const mode = promptRows > 0 ? PROMPT : DECODE;
    this.#isDetailed = this.everyStep || --this.#skips[mode] < 0;
    if (this.#isDetailed) {
      this.#layers.fill(0);
      this.#clock.start();
    }
    this.#begunMs = performance.now();
  }

  /** The layer is done, and what it read has been waited for. Of detailed steps only. */
  layerEnds(layer: number): void {
    if (!this.#inStep) return;
    this.#take();
    this.#takePhases();
    this.#work[ROWS] = this.#promptRows + this.#decodeRows;
    const at = layer * WORK_COUNT;
    for (let i = 0; i < WORK_COUNT; i++) this.#layers[at + i] += this.#work[i];
    this.#addToStep();
    if (this.#work[REQUESTS] > 0) this.#observe('layerWaitUs', this.#work[WAIT], 1);
    this.#event('layer', layer, this.#work, WORK_COUNT);
  }

  /** The pass is done and its tokens are chosen, or it has failed. */
  stepEnds(failed: boolean): void {
    const elapsedUs = (performance.now() - this.#begunMs) * 1000;
    this.#take();
    if (this.#isDetailed) this.#takePhases();
    this.#addToStep();
    this.#clock.stop();
    this.#inStep = false;
    const step = this.#step;
    const promptRows = this.#promptRows;
    const decodeRows = this.#decodeRows;
    const rows = promptRows + decodeRows;
    // one clock for the phases and their sum
    const stepUs = this.#isDetailed ? step[TOTAL] : elapsedUs;
    step[ROWS] = rows;
    step[TOTAL] = stepUs;
    step[WORK_COUNT] = promptRows;
    step[WORK_COUNT + 1] = decodeRows;
    step[WORK_COUNT + 2] = failed ? 1 : 0;
    step[WORK_COUNT + 3] = this.#isDetailed ? 1 : 0;
    step[WORK_COUNT + 4] = this.#isDetailed ? stepUs - step[WAIT] : 0;
    this.#event('step', -1, step, step.length);
    if (!failed && decodeRows > 0) this.#observe('tokenUs', stepUs, decodeRows);
    if (!failed && promptRows > 0) this.#observe('promptTokenUs', stepUs / rows, 1);
    this.#addToSums(promptRows > 0 ? PROMPT : DECODE);
    if (this.#isDetailed) this.#plan(promptRows > 0 ? PROMPT : DECODE, stepUs);
    for (let mark = this.#ended.pop(); mark; mark = this.#ended.pop()) this.#tellLast(mark);
  }

  /** How many steps to leave out, so that looking does not cost more than its share. */
  #plan(mode: number, stepUs: number): void {
    const costUs = this.shared.layers * LAYER_COST_US;
    this.#skips[mode] = Math.min(MAX_SKIPS, Math.floor(costUs / (MAX_COST_SHARE * stepUs)));
  }

  // ---- requests -----------------------------------------------------------------------------------------------------

  requestBegins(): RequestMark {
    if (this.#requests++ === 0) this.#view.turnUses.fill(0);
    return this.#view.sums.slice();
  }

  /** Microseconds since requestBegins. */
  firstToken(us: number): void {
    this.#observe('firstTokenUs', us, 1);
  }

  /** The steps of the request, the one that runs included, become the last request. */
  requestEnds(mark: RequestMark): void {
    this.#requests--;
    if (this.#inStep) this.#ended.push(mark);
    else this.#tellLast(mark);
  }

  // ---- experts ------------------------------------------------------------------------------------------------------

  /** See LeaseObserver of the expert store. */
  leaseBegins(layer: number, experts: Int32Array, uses: Int32Array, count: number): void {
    const first = layer * this.shared.experts;
    const { turnUses } = this.#view;
    for (let i = 0; i < count; i++) turnUses[first + experts[i]] += uses[i];
  }

  /** A read has arrived from a drive. */
  readEnds(bytes: number, serviceUs: number, drive: number): void {
    this.#arrived[0]++;
    this.#arrived[1 + Math.min(drive, MAX_DRIVES - 1)] += bytes;
    this.#observe('readUs', serviceUs, 1);
  }

  lookAheadChanges(pays: boolean): void {
    this.note('prefetch', pays ? 1 : 0);
  }

  /** Copies which expert is where, now and then: `fill` writes positions in EXPERT_TIERS, per layer and expert. */
  experts(fill: (tiers: Uint8Array) => void, isIdle: boolean): void {
    const now = performance.now();
    if (!isIdle && now - this.#tiersMs < TIERS_EVERY_MS) return;
    this.#tiersMs = now;
    fill(this.#view.tiers);
  }

  /** Numbers of any unit, per layer and expert; 0 = cold. */
  get heat(): Float64Array {
    return this.#view.heat;
  }

  // ---- rare events --------------------------------------------------------------------------------------------------

  note(kind: 'repin' | 'prefetch' | 'mirror', value: number): void {
    this.#event(kind, -1, Float64Array.of(value), 1);
  }

  // ---- inside -------------------------------------------------------------------------------------------------------

  /** Fills `work` with what was counted since the last call, without times. */
  #take(): void {
    const now = this.#now;
    const work = this.#work;
    this.#sample(now);
    now[READS] = this.#arrived[0];
    for (let drive = 0; drive < MAX_DRIVES; drive++) now[DRIVE0 + drive] = this.#arrived[1 + drive];
    for (let i = FIRST_SAMPLED; i < FIRST_PHASE; i++) work[i] = now[i] - this.#before[i];
    work.fill(0, FIRST_PHASE);
    this.#now = this.#before;
    this.#before = now;
  }

  /** Adds the time since the last call, by phase. */
  #takePhases(): void {
    const clock = this.#clock;
    const work = this.#work;
    clock.book();
    let total = 0;
    for (let phase = 0; phase < PHASES.length; phase++) {
      work[FIRST_PHASE + phase] = clock.us[phase];
      total += clock.us[phase];
    }
    // it waits for experts and for nothing else
    work[EXPERTS_US] = Math.max(0, clock.us[PHASE.experts] - work[WAIT]);
    work[TOTAL] = total;
    clock.clear();
  }

  #addToStep(): void {
    for (let i = 0; i < WORK_COUNT; i++) this.#step[i] += this.#work[i];
  }

  #addToSums(mode: number): void {
    const { head, sums } = this.#view;
    const step = this.#layout.step(mode);
    const layers = this.#layout.layer(mode, 0);
    Atomics.add(head, SUMS_VERSION, 1);
    sums[step]++;
    for (let i = 0; i < this.#step.length; i++) sums[step + 1 + i] += this.#step[i];
    if (this.#isDetailed) for (let i = 0; i < this.#layers.length; i++) sums[layers + i] += this.#layers[i];
    Atomics.add(head, SUMS_VERSION, 1);
  }

  #tellLast(mark: RequestMark): void {
    const { head, sums, last } = this.#view;
    Atomics.add(head, LAST_VERSION, 1);
    for (let i = 0; i < sums.length; i++) last[i] = sums[i] - mark[i];
    Atomics.add(head, LAST_VERSION, 1);
  }

  #observe(name: HistogramName, value: number, count: number): void {
    observe(this.#view.sums, this.#layout.histogram(name), value, count);
  }

  #event(kind: EventKind, layer: number, values: Float64Array, count: number): void {
    this.#ring.write(kind, this.#stepNumber, layer, performance.now() - this.#openedMs, values, 0, count);
  }
}
