/** Several generations at once in this thread, step by step: what the engine worker does, without its thread. */

import type { EffectiveSampling, GenerateEvent } from '../../src/engine/api.ts';
import type { IdRequest } from '../../src/engine/generate.ts';
import { Generation, type TokenizerFacts } from '../../src/engine/generation.ts';
import type { KvFiles } from '../../src/engine/kv-files.ts';
import { checkPrompt } from '../../src/engine/prompt-check.ts';
import type { Runtime } from '../../src/engine/runtime.ts';
import { resolveSampling } from '../../src/engine/sampling-options.ts';
import { Scheduler } from '../../src/engine/scheduler.ts';
import { Session } from '../../src/engine/session.ts';
import { SessionPool } from '../../src/engine/session-pool.ts';
import { createStatus, readStatus, StatusWriter } from '../../src/engine/status.ts';
import { Tokenizer } from '../../src/tokenizer/tokenizer.ts';

export interface Asked extends IdRequest {
  readonly ids: readonly number[];
}

export interface Answer {
  readonly events: readonly GenerateEvent[];
  readonly tokenIds: readonly number[];
  readonly cachedTokens: number;
  readonly finishReason: string | null;
  readonly error: unknown;
}

export class Together {
  readonly runtime: Runtime;
  readonly pool: SessionPool;
  readonly scheduler: Scheduler;
  readonly #status = createStatus();
  readonly #facts: TokenizerFacts;

  constructor(runtime: Runtime, model: string, files: KvFiles | null = null) {
    const { tokenBytes, vocabSize } = Tokenizer.load(model);
    this.runtime = runtime;
    this.#facts = { tokenBytes, vocabSize, endOfTurnIds: [] };
    const sessions = Array.from({ length: runtime.info.slots }, (_, slot) => new Session(runtime, slot));
    this.pool = new SessionPool(sessions, runtime.batch.cache, files);
    this.scheduler = new Scheduler(runtime, this.pool, new StatusWriter(this.#status));
  }

  get status() {
    return readStatus(this.#status);
  }

  /** `onEvent` hears of every event and may have the request cancelled by returning true; so may `isGivenUp`, asked at any time. */
  add(
    asked: Asked,
    onEvent: (event: GenerateEvent) => unknown = () => {},
    isGivenUp: () => boolean = () => false,
  ): () => Answer {
    const { ids, ...request } = asked;
    const { runtime } = this;
    const config = runtime.files.checkpoint.generationConfig;
    const sampling: EffectiveSampling = resolveSampling(request, config, checkPrompt(ids, runtime.info));
    const events: GenerateEvent[] = [];
    let error: unknown = null;
    let isCancelled = false;
    const sink = {
      event(event: GenerateEvent) {
        events.push(event);
        isCancelled ||= onEvent(event) === true;
      },
      done() {},
      fail(thrown: unknown) {
        error = thrown;
      },
      cancelled: () => isCancelled || isGivenUp(),
    };
    this.scheduler.add(new Generation(runtime, this.#facts, { promptIds: ids, sampling, request }, sink));
    return () => answerOf(events, error);
  }

  /** Steps until all is done. */
  finish(): void {
    while (this.scheduler.step());
  }

  all(asked: readonly Asked[]): Answer[] {
    const answers = asked.map(one => this.add(one));
    this.finish();
    return answers.map(answer => answer());
  }
}

function answerOf(events: readonly GenerateEvent[], error: unknown): Answer {
  const start = events.find(event => event.type === 'start');
  const end = events.find(event => event.type === 'end');
  return {
    events,
    tokenIds: events.filter(event => event.type === 'token').map(event => event.id),
    cachedTokens: start?.cachedTokens ?? 0,
    finishReason: end?.finishReason ?? null,
    error,
  };
}
