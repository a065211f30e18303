/** One generation: prompt in, events out. Runs synchronously in the engine worker. */

import { RequestError } from '../common/errors.ts';
import { countersSince, type ExpertCounters } from '../experts/counters.ts';
import { Cancelled } from '../experts/store.ts';
import { assertUnchanged } from '../formats/checkpoint.ts';
import { StreamDecoder } from '../tokenizer/stream-decoder.ts';
import type { TokenBytes } from '../tokenizer/token-bytes.ts';
import type {
  EffectiveSampling,
  EngineInfo,
  FinishReason,
  GenerateEvent,
  GenerateRequest,
  GenerateStats,
} from './api.ts';
import { maxRssBytes } from './machine.ts';
import type { Runtime } from './runtime.ts';
import { Sampler } from './sampler.ts';
import { resolveSampling } from './sampling-options.ts';
import type { Session } from './session.ts';
import { StopMatcher } from './stops.ts';

/** What the engine must know of the tokenizer. */
export interface TokenizerFacts {
  readonly tokenBytes: TokenBytes;
  /** Ids that the tokenizer has; logits beyond belong to padding and are never chosen. */
  readonly vocabSize: number;
  /** Tokens that the chat template puts after an answer. */
  readonly endOfTurnIds: readonly number[];
}

export type IdRequest = Omit<GenerateRequest, 'prompt'>;

const seconds = (from: number, to: number) => (to - from) / 1000;

/** Progress inside a chunk is told at most this often. */
const PROGRESS_MS = 100;

/** Generates after `promptIds`; `emit` gets every event in order, the last one is `end`. */
export function generate(
  runtime: Runtime,
  session: Session,
  tokenizer: TokenizerFacts,
  promptIds: readonly number[],
  request: IdRequest,
  emit: (event: GenerateEvent) => void,
): void {
  new Generation(runtime, session, tokenizer, promptIds, request, emit).run();
}

class Generation {
  readonly #runtime: Runtime;
  readonly #session: Session;
  readonly #promptIds: readonly number[];
  readonly #emit: (event: GenerateEvent) => void;
  readonly #ignoreEos: boolean;
  readonly #sampling: EffectiveSampling;
  readonly #sampler: Sampler;
  readonly #stops: StopMatcher;
  readonly #decoder: StreamDecoder;
  readonly #stopIds: ReadonlySet<number>;
  readonly #countersBefore: ExpertCounters;
  readonly #begun = performance.now();
  readonly #generated: number[] = [];
  #text = '';
  #finishReason: FinishReason = 'length';
  #stopReason: number | string | null = null;
  #prefillTokens = 0;
  #prefillEnd = 0;
  #firstToken = 0;
  /** Row of the last forward pass whose logits come next. */
  #logitRow = 0;

  constructor(
    runtime: Runtime,
    session: Session,
    tokenizer: TokenizerFacts,
    promptIds: readonly number[],
    request: IdRequest,
    emit: (event: GenerateEvent) => void,
  ) {
    const { info, files } = runtime;
    this.#runtime = runtime;
    this.#session = session;
    this.#promptIds = promptIds;
    this.#emit = emit;
    this.#ignoreEos = request.ignoreEos ?? false;
    const contextLeft = checkPrompt(promptIds, info);
    this.#sampling = resolveSampling(request, files.checkpoint.generationConfig, contextLeft);
    const usable = Math.min(tokenizer.vocabSize, info.vocabSize);
    this.#sampler = new Sampler(this.#sampling, request.logitBias, usable, request.logprobs);
    this.#stops = new StopMatcher(request.stop ?? []);
    this.#decoder = new StreamDecoder(tokenizer.tokenBytes);
    this.#stopIds = new Set([...runtime.eosIds, ...tokenizer.endOfTurnIds]);
    this.#countersBefore = { ...runtime.store.counters };
  }

  run(): void {
    const { files, store } = this.#runtime;
    assertUnchanged(files.checkpoint.files);
    this.#emit({ type: 'start', promptIds: [...this.#promptIds], sampling: this.#sampling });
    try {
      this.#prefill();
      while (this.#generated.length < this.#sampling.maxTokens && this.#next());
    } catch (error) {
      if (!(error instanceof Cancelled)) {
        // weights that were overwritten explain any other error
        assertUnchanged(files.checkpoint.files);
        throw error;
      }
      this.#finishReason = 'cancelled';
    } finally {
      store.settle();
    }
    assertUnchanged(files.checkpoint.files);
    this.#emit({
      type: 'end',
      text: this.#text,
      tokenIds: this.#generated,
      finishReason: this.#finishReason,
      stopReason: this.#stopReason,
      stats: this.#stats(),
    });
  }

  /** Feeds what the session does not have yet; at least the last token, because its logits are not kept. */
  #prefill(): void {
    const session = this.#session;
    session.truncate(Math.min(session.commonPrefix(this.#promptIds), this.#promptIds.length - 1));
    const rest = this.#promptIds.slice(session.length);
    const total = rest.length;
    this.#prefillTokens = total;
    let told = performance.now();
    session.feedAll(rest, (done, rows, share) => {
      const now = performance.now();
      if (share < 1 && now - told < PROGRESS_MS) return;
      told = now;
      this.#logitRow = rows - 1;
      this.#emit({ type: 'prefill', done: done + Math.floor(rows * share), total });
    });
    this.#prefillEnd = performance.now();
  }

  /** Samples one token and feeds it; false when the answer is complete. */
  #next(): boolean {
    const { model } = this.#runtime;
    const logits = model.logits(this.#logitRow, 1);
    const { id, logprobs } = this.#sampler.next(logits, this.#promptIds, this.#generated);
    this.#generated.push(id);
    this.#firstToken ||= performance.now();
    const isStop = this.#stopIds.has(id);
    const ends = isStop && !this.#ignoreEos;
    const isLast = ends || this.#generated.length === this.#sampling.maxTokens;
    this.#emit({ type: 'token', id, text: this.#show(id, isStop, isLast), logprobs });
    if (ends || this.#stops.matched !== null) {
      this.#finishReason = 'stop';
      this.#stopReason = this.#stops.matched ?? id;
      return false;
    }
    if (isLast) return false;
    this.#session.feed([id]);
    this.#logitRow = 0;
    return true;
  }

  /** Text that nothing can take back any more; with the last token comes everything that was held back. */
  #show(id: number, isStop: boolean, isLast: boolean): string {
    const piece = (isStop ? '' : this.#decoder.push(id)) + (isLast ? this.#decoder.flush() : '');
    const step = this.#stops.push(piece);
    const shown = isLast && step.matched === null ? step.emit + this.#stops.flush() : step.emit;
    this.#text += shown;
    return shown;
  }

  #stats(): GenerateStats {
    const { info, store } = this.#runtime;
    const begun = this.#begun;
    const end = performance.now();
    const prefillEnd = this.#prefillEnd || end;
    const used = countersSince(store.counters, this.#countersBefore);
    return {
      prefill_tokens: this.#prefillTokens,
      prefill_s: seconds(begun, prefillEnd),
      decode_tokens: this.#generated.length,
      decode_s: seconds(prefillEnd, end),
      ttft_s: this.#firstToken > 0 ? seconds(begun, this.#firstToken) : 0,
      expert_requests: used.requests,
      expert_hits: used.hits,
      expert_prefetched: used.prefetched,
      expert_wasted: used.wasted,
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

/** Room left for the answer. Throws when the prompt is empty, too long or has impossible ids. */
function checkPrompt(ids: readonly number[], { context, maxContext, vocabSize }: EngineInfo): number {
  if (ids.length === 0) {
    throw new RequestError('EMPTY_PROMPT', 'the prompt has no tokens', { hint: 'give some text' });
  }
  const bad = ids.find(id => !Number.isInteger(id) || id < 0 || id >= vocabSize);
  if (bad !== undefined) {
    throw new RequestError('BAD_TOKEN_ID', `token id ${bad} is not in 0..${vocabSize - 1}`, {
      hint: "give ids of this model's own tokenizer",
      details: { id: bad },
    });
  }
  if (ids.length >= context) {
    throw new RequestError(
      'CONTEXT_EXCEEDED',
      `the prompt has ${ids.length} tokens; the context of ${context} leaves no room for an answer`,
      {
        hint: `shorten the prompt${context < maxContext ? ' or use a larger --ctx' : '; this model takes no larger context'}`,
        details: { promptTokens: ids.length, context },
      },
    );
  }
  return context - ids.length;
}
