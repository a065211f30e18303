/** One generation: prompt in, events out. Runs synchronously in the engine worker. */

import { RequestError } from '../common/errors.ts';
import { countersSince } from '../experts/counters.ts';
import { Cancelled } from '../experts/store.ts';
import { assertUnchanged } from '../formats/checkpoint.ts';
import { StreamDecoder } from '../tokenizer/stream-decoder.ts';
import type { TokenBytes } from '../tokenizer/token-bytes.ts';
import type { FinishReason, GenerateEvent, GenerateRequest, GenerateStats } from './api.ts';
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

/** Generates after `promptIds`; `emit` gets every event in order, the last one is `end`. */
export function generate(
  runtime: Runtime,
  session: Session,
  tokenizer: TokenizerFacts,
  promptIds: readonly number[],
  request: IdRequest,
  emit: (event: GenerateEvent) => void,
): void {
  const { info, files, store } = runtime;
  const begun = performance.now();
  const contextLeft = checkPrompt(promptIds, info.context, info.vocabSize);
  assertUnchanged(files.checkpoint.files);
  const sampling = resolveSampling(request, files.checkpoint.generationConfig, contextLeft);
  const usable = Math.min(tokenizer.vocabSize, info.vocabSize);
  const sampler = new Sampler(sampling, request.logitBias, usable, request.logprobs);
  const stops = new StopMatcher(request.stop ?? []);
  const decoder = new StreamDecoder(tokenizer.tokenBytes);
  const stopIds = new Set([...runtime.eosIds, ...tokenizer.endOfTurnIds]);
  const before = { ...store.counters };
  emit({ type: 'start', promptIds: [...promptIds], sampling });

  const generated: number[] = [];
  let text = '';
  let finishReason: FinishReason = 'length';
  let stopReason: number | string | null = null;
  let prefillTokens = 0;
  let prefillEnd = 0;
  let firstToken = 0;

  /** Text of a token that nothing can take back any more; with the last token comes everything that was held back. */
  const show = (id: number, isStop: boolean, isLast: boolean): string => {
    const step = stops.push((isStop ? '' : decoder.push(id)) + (isLast ? decoder.flush() : ''));
    const shown = isLast && step.matched === null ? step.emit + stops.flush() : step.emit;
    text += shown;
    return shown;
  };

  try {
    // at least the last prompt token is fed anew: its logits are not kept
    session.truncate(Math.min(session.commonPrefix(promptIds), promptIds.length - 1));
    const rest = promptIds.slice(session.length);
    prefillTokens = rest.length;
    let lastRows = 0;
    session.feedAll(rest, (done, rows) => {
      lastRows = rows;
      emit({ type: 'prefill', done, total: rest.length });
    });
    prefillEnd = performance.now();
    while (generated.length < sampling.maxTokens) {
      const logits = runtime.model.logits(lastRows - 1, 1);
      const { id, logprobs } = sampler.next(logits, promptIds, generated);
      generated.push(id);
      firstToken ||= performance.now();
      const isStop = stopIds.has(id);
      const ends = isStop && !request.ignoreEos;
      const isLast = ends || generated.length === sampling.maxTokens;
      emit({ type: 'token', id, text: show(id, isStop, isLast), logprobs });
      if (ends || stops.matched !== null) {
        finishReason = 'stop';
        stopReason = stops.matched ?? id;
        break;
      }
      if (isLast) break;
      session.feed([id]);
      lastRows = 1;
    }
  } catch (error) {
    if (!(error instanceof Cancelled)) throw error;
    finishReason = 'cancelled';
  } finally {
    store.settle();
  }

  assertUnchanged(files.checkpoint.files);
  const end = performance.now();
  prefillEnd ||= end;
  const used = countersSince(store.counters, before);
  const stats: GenerateStats = {
    prefill_tokens: prefillTokens,
    prefill_s: seconds(begun, prefillEnd),
    decode_tokens: generated.length,
    decode_s: seconds(prefillEnd, end),
    ttft_s: firstToken > 0 ? seconds(begun, firstToken) : 0,
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
    threads: info.threads,
  };
  emit({ type: 'end', text, tokenIds: generated, finishReason, stopReason, stats });
}

/** Room left for the answer. Throws when the prompt is empty, too long or has impossible ids. */
function checkPrompt(ids: readonly number[], context: number, vocabSize: number): number {
  if (ids.length === 0) {
    throw new RequestError('EMPTY_PROMPT', 'the prompt has no tokens', { hint: 'give some text' });
  }
  const bad = ids.find(id => !Number.isInteger(id) || id < 0 || id >= vocabSize);
  if (bad !== undefined) {
    throw new RequestError('BAD_TOKEN_ID', `token id ${bad} is not in 0..${vocabSize - 1}`, { details: { id: bad } });
  }
  if (ids.length >= context) {
    throw new RequestError(
      'CONTEXT_EXCEEDED',
      `the prompt has ${ids.length} tokens; the context of ${context} leaves no room for an answer`,
      { hint: 'shorten the prompt or use a larger --ctx', details: { promptTokens: ids.length, context } },
    );
  }
  return context - ids.length;
}
