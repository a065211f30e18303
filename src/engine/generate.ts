/** One generation by itself, run to its end on the calling thread: for evaluations, benchmarks and tests. */

import type { GenerateEvent, GenerateRequest } from './api.ts';
import { Generation, type TokenizerFacts } from './generation.ts';
import { checkPrompt } from './prompt-check.ts';
import type { Runtime } from './runtime.ts';
import { resolveSampling } from './sampling-options.ts';
import { Scheduler } from './scheduler.ts';
import type { Session } from './session.ts';
import { SessionPool } from './session-pool.ts';
import { createStatus, StatusWriter } from './status.ts';

export type { TokenizerFacts } from './generation.ts';
export type IdRequest = Omit<GenerateRequest, 'prompt' | 'constraint'>;

/** Generates after `promptIds` in `session`; `emit` gets every event in order, the last one is `end`. */
export function generate(
  runtime: Runtime,
  session: Session,
  tokenizer: TokenizerFacts,
  promptIds: readonly number[],
  request: IdRequest,
  emit: (event: GenerateEvent) => void,
): void {
  const contextLeft = checkPrompt(promptIds, runtime.info);
  const sampling = resolveSampling(request, runtime.files.checkpoint.generationConfig, contextLeft);
  const { cancelled } = runtime;
  let failure: { error: unknown } | null = null;
  const sink = {
    event: emit,
    done: () => {},
    fail: (error: unknown) => {
      failure = { error };
    },
    cancelled,
  };
  const generation = new Generation(runtime, tokenizer, { promptIds, sampling, request }, sink);
  const scheduler = new Scheduler(
    runtime,
    new SessionPool([session], runtime.batch.cache, null),
    new StatusWriter(createStatus()),
  );
  scheduler.add(generation);
  while (scheduler.step());
  const failed = failure as { error: unknown } | null;
  if (failed) throw failed.error;
}
