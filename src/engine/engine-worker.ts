/** Entry of the engine worker: one request at a time, in order. Cancellation comes through shared memory. */

import { parentPort, workerData } from 'node:worker_threads';
import { errorToWire } from '../common/errors.ts';
import { parseFaultPlan } from '../storage/faults.ts';
import type { EngineOptions, ScoreRequest } from './api.ts';
import { generate, type IdRequest, type TokenizerFacts } from './generate.ts';
import { Runtime } from './runtime.ts';
import { score } from './score.ts';
import { Session } from './session.ts';

export interface EngineWorkerData {
  readonly options: EngineOptions;
  readonly arenaBytes: number | undefined;
  /** Test hook, "3:eio": the third read fails. */
  readonly faults: string | undefined;
}

export type EngineCommand =
  | { id: number; method: 'tokenizer'; facts: TokenizerFacts }
  | { id: number; method: 'generate'; promptIds: number[]; request: IdRequest; cancel: SharedArrayBuffer }
  | { id: number; method: 'score'; request: ScoreRequest }
  | { id: number; method: 'close' };

const port = parentPort!;
const data = workerData as EngineWorkerData;
let runtime: Runtime;
let session: Session;
let tokenizer: TokenizerFacts;

async function open(): Promise<void> {
  const hooks = {
    arenaBytes: data.arenaBytes,
    faults: data.faults === undefined ? undefined : parseFaultPlan(data.faults),
  };
  runtime = await Runtime.open(data.options, progress => port.postMessage({ id: 0, progress }), hooks);
  session = new Session(runtime);
  port.postMessage({ id: 0, done: true, value: runtime.info });
}

async function execute(command: EngineCommand): Promise<unknown> {
  switch (command.method) {
    case 'tokenizer':
      tokenizer = command.facts;
      return undefined;
    case 'generate': {
      const cancel = new Int32Array(command.cancel);
      runtime.cancelled = () => Atomics.load(cancel, 0) !== 0;
      const emit = (event: unknown) => port.postMessage({ id: command.id, event });
      generate(runtime, session, tokenizer, command.promptIds, command.request, emit);
      return undefined;
    }
    case 'score':
      runtime.cancelled = () => false;
      return score(runtime, session, command.request);
    case 'close':
      await runtime.close();
      return undefined;
  }
}

port.on('message', async (command: EngineCommand) => {
  try {
    const value = await execute(command);
    port.postMessage({ id: command.id, done: true, value });
    if (command.method === 'close') port.close();
  } catch (error) {
    // whatever was fed halfway is not trusted again
    if (command.method === 'generate' || command.method === 'score') session.truncate(0);
    port.postMessage({ id: command.id, error: errorToWire(error) });
  }
});

open().catch(error => {
  port.postMessage({ id: 0, error: errorToWire(error) });
  port.close();
});
