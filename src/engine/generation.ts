/** One answer in the making: from the ids of its prompt to its last token. The scheduler decides when it is fed. */

import { countersSince, type ExpertCounters } from '../experts/counters.ts';
import type { ConstraintChannel } from '../grammar/api.ts';
import { PHASE } from '../telemetry/fields.ts';
import type { RequestMark } from '../telemetry/recorder.ts';
import { StreamDecoder } from '../tokenizer/stream-decoder.ts';
import type { TokenBytes } from '../tokenizer/token-bytes.ts';
import type { EffectiveSampling, FinishReason, GenerateEvent, GenerateRequest, GenerateStats } from './api.ts';
import { ConstraintReader } from './constraint.ts';
import { maxRssBytes } from './machine.ts';
import type { Runtime } from './runtime.ts';
import { Sampler } from './sampler.ts';
import type { Feed, Session } from './session.ts';
import { StopMatcher } from './stops.ts';

/** What the engine must know of the tokenizer. */
export interface TokenizerFacts {
  readonly tokenBytes: TokenBytes;
  /** Ids that the tokenizer has; logits beyond belong to padding and are never chosen. */
  readonly vocabSize: number;
  /** Tokens that the chat template puts after an answer. */
  readonly endOfTurnIds: readonly number[];
}

/** A request that has been checked. */
export interface Order {
  readonly promptIds: readonly number[];
  readonly sampling: EffectiveSampling;
  readonly request: Pick<GenerateRequest, 'logitBias' | 'logprobs' | 'stop' | 'ignoreEos'>;
  /** Id -> spelling. */
  readonly markers?: ReadonlyMap<number, string>;
  readonly constraint?: { readonly channel: ConstraintChannel; readonly afterId: number | null };
}

/** Where an answer goes: events, then `done` or `fail`, once. */
export interface Sink {
  event(event: GenerateEvent): void;
  done(): void;
  fail(error: unknown): void;
  /** True when nobody wants the answer any more. */
  cancelled(): boolean;
}

/** Progress inside a chunk is told at most this often. */
const PROGRESS_MS = 100;

const seconds = (from: number, to: number) => (to - from) / 1000;

export class Generation {
  readonly sink: Sink;
  readonly constraint: ConstraintReader | null;
  readonly promptIds: readonly number[];
  readonly #runtime: Runtime;
  readonly #ignoreEos: boolean;
  readonly #sampling: EffectiveSampling;
  readonly #sampler: Sampler;
  readonly #stops: StopMatcher;
  readonly #decoder: StreamDecoder;
  readonly #stopIds: ReadonlySet<number>;
  readonly #markers: ReadonlyMap<number, string>;
  readonly #generated: number[] = [];
  #session: Session | null = null;
  #countersBefore!: ExpertCounters;
  #mark: RequestMark | null = null;
  #text = '';
  #finishReason: FinishReason = 'length';
  #stopReason: number | string | null = null;
  #isComplete = false;
  #begun = 0;
  #cachedTokens = 0;
  #prefillEnd = 0;
  #firstToken = 0;
  #told = 0;
  #progress = 0;
  #batchRows = 0;

  constructor(runtime: Runtime, tokenizer: TokenizerFacts, order: Order, sink: Sink) {
    const { promptIds, sampling, request, markers = new Map(), constraint } = order;
    this.#runtime = runtime;
    this.sink = sink;
    this.promptIds = promptIds;
    this.#ignoreEos = request.ignoreEos ?? false;
    this.#sampling = sampling;
    const usable = Math.min(tokenizer.vocabSize, runtime.info.vocabSize);
    this.#sampler = new Sampler(sampling, request.logitBias, usable, request.logprobs, constraint !== undefined);
    this.#stops = new StopMatcher(request.stop ?? []);
    this.#markers = markers;
    this.#decoder = new StreamDecoder(tokenizer.tokenBytes);
    this.#stopIds = new Set([...runtime.eosIds, ...tokenizer.endOfTurnIds]);
    this.constraint = constraint ? new ConstraintReader(constraint.channel, constraint.afterId) : null;
  }

  get session(): Session | null {
    return this.#session;
  }

  /** Gets a session that holds the first `session.length` tokens of the prompt, but not all. */
  begin(session: Session): void {
    this.#session = session;
    this.#begun = performance.now();
    this.#told = this.#begun;
    this.#cachedTokens = session.length;
    this.#countersBefore = { ...this.#runtime.store.counters };
    this.#mark = this.#runtime.telemetry.requestBegins();
    this.#tellStart();
  }

  #tellStart(): void {
    const { promptIds } = this;
    const cachedTokens = this.#cachedTokens;
    this.sink.event({ type: 'start', promptIds: [...promptIds], sampling: this.#sampling, cachedTokens });
  }

  get cachedTokens(): number {
    return this.#cachedTokens;
  }

  /** Tokens of the prompt that are not fed yet; 0 while the answer is made. */
  get promptLeft(): number {
    return this.#generated.length > 0 ? 0 : this.promptIds.length - this.#session!.length;
  }

  /** Tokens of the prompt that the next pass can take, at most `rows`. */
  promptRows(rows: number): number {
    return this.#session!.untilSnapshot(Math.min(rows, this.promptLeft));
  }

  /** The answer has all its tokens. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  /** What the next forward pass takes: at most `rows` tokens of the prompt, or the token chosen last. */
  feed(rows: number): Feed {
    const session = this.#session!;
    if (this.#generated.length > 0) {
      const to = this.#generated.length;
      return { session, ids: this.#generated, from: to - 1, to };
    }
    const from = session.length;
    return { session, ids: this.promptIds, from, to: Math.min(from + rows, this.promptIds.length) };
  }

  /** Tells how far the prompt is: `rows` tokens are under way, a share of their layers done. */
  tellProgress(rows: number, share: number): void {
    const now = performance.now();
    if (share < 1 && now - this.#told < PROGRESS_MS) return;
    this.#told = now;
    const before = this.#session!.length - this.#cachedTokens - (share < 1 ? 0 : rows);
    // a pass that is done again for others does not go back
    this.#progress = Math.max(this.#progress, before + Math.floor(rows * share));
    this.sink.event({ type: 'prefill', done: this.#progress, total: this.promptIds.length - this.#cachedTokens });
  }

  /** The last token of the prompt is fed: tokens can be chosen from now on, if any are wanted. */
  promptDone(): void {
    this.#prefillEnd = performance.now();
    this.#isComplete = this.#sampling.maxTokens === 0;
  }

  /** Chooses the next token from its logits [vocab]. `batchRows`: how many answers were made by the same pass. */
  choose(logits: Float32Array, batchRows: number): void {
    const mask = this.constraint?.mask ?? null;
    const { clock } = this.#runtime.compute;
    clock.enter(PHASE.sampler);
    const { id, logprobs } = this.#sampler.next(logits, this.promptIds, this.#generated, mask);
    clock.enter(PHASE.other);
    this.#generated.push(id);
    this.#batchRows += batchRows;
    if (this.#firstToken === 0) {
      this.#firstToken = performance.now();
      this.#runtime.telemetry.firstToken((this.#firstToken - this.#begun) * 1000);
    }
    const isStop = this.#stopIds.has(id);
    const ends = isStop && !this.#ignoreEos;
    const isLast = ends || this.#generated.length === this.#sampling.maxTokens;
    const marker = isStop ? undefined : this.#markers.get(id);
    const text = marker === undefined ? this.#show(id, isStop, isLast) : this.#showHeld();
    this.sink.event({ type: 'token', id, text, ...(marker !== undefined && { marker }), logprobs });
    if (ends || this.#stops.matched !== null) {
      this.#finishReason = 'stop';
      this.#stopReason = this.#stops.matched ?? id;
      this.#isComplete = true;
    } else if (isLast) this.#isComplete = true;
    else this.constraint?.accept(id);
  }

  /** Text that nothing can take back any more; with the last token comes everything that was held back. */
  #show(id: number, isStop: boolean, isLast: boolean): string {
    const piece = (isStop ? '' : this.#decoder.push(id)) + (isLast ? this.#decoder.flush() : '');
    const step = this.#stops.push(piece);
    const shown = isLast && step.matched === null ? step.emit + this.#stops.flush() : step.emit;
    this.#text += shown;
    return shown;
  }

  /** What was held back of the text before a marker. */
  #showHeld(): string {
    const { emit, matched } = this.#stops.push(this.#decoder.flush());
    const shown = matched === null ? emit + this.#stops.flush() : emit;
    this.#text += shown;
    return shown;
  }

  /** It is no longer under way, well or not. To be called once. */
  leave(): void {
    if (this.#mark) this.#runtime.telemetry.requestEnds(this.#mark);
    this.#mark = null;
  }

  finish(cancelled: boolean): void {
    if (this.#session === null) this.#tellStart();
    if (cancelled) this.#finishReason = 'cancelled';
    this.sink.event({
      type: 'end',
      text: this.#text,
      tokenIds: this.#generated,
      finishReason: this.#finishReason,
      stopReason: this.#stopReason,
      stats: this.#stats(),
    });
    this.sink.done();
  }

  #stats(): GenerateStats {
    const { info, store } = this.#runtime;
    const end = performance.now();
    const begun = this.#begun || end;
    const prefillEnd = this.#prefillEnd || end;
    const used = countersSince(store.counters, this.#countersBefore ?? store.counters);
    const tokens = this.#generated.length;
    const fed = Math.min(this.#session?.length ?? 0, this.promptIds.length);
    return {
      prefill_tokens: fed - this.#cachedTokens,
      cached_tokens: this.#cachedTokens,
      prefill_s: seconds(begun, prefillEnd),
      decode_tokens: tokens,
      decode_s: seconds(prefillEnd, end),
      decode_batch: tokens > 0 ? this.#batchRows / tokens : 0,
      ttft_s: this.#firstToken > 0 ? seconds(begun, this.#firstToken) : 0,
      expert_requests: used.requests,
      expert_hits: used.hits,
      expert_prefetched: used.prefetched,
      expert_wasted: used.wasted,
      expert_prefetch_used: used.aheadHits,
      expert_prefetch_late: used.aheadLate,
      expert_warm_hits: used.warmHits,
      expert_guessable: used.guessable,
      expert_guessed: used.guessed,
      prefetch_useful_bytes: used.usefulBytes,
      prefetch_wasted_bytes: used.wastedBytes,
      prefetch_changes: used.lookAheadChanges,
      prefetch_on: store.looksAhead,
      bytes_read: used.bytesRead,
      read_service_s: used.serviceUs / 1e6,
      read_wait_s: used.waitUs / 1e6,
      resident_bytes: info.plan.resident,
      slot_bytes: info.plan.slots,
      max_rss_bytes: maxRssBytes(),
      kernels: info.kernels,
      activations: info.activations,
      threads: info.threads,
    };
  }
}
