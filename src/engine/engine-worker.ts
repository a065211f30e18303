/** Entry of the engine worker: one request at a time, in order. Cancellation comes through shared memory. */

import { parentPort, workerData } from 'node:worker_threads';
import { errorToWire } from '../common/errors.ts';
import { type FaultPlan, parseFaultPlan } from '../storage/faults.ts';
import type { EngineOptions, ScoreRequest } from './api.ts';
import { generate, type IdRequest, type TokenizerFacts } from './generate.ts';
import { readModel } from './model-files.ts';
import { Runtime } from './runtime.ts';
import { score } from './score.ts';
import { Session } from './session.ts';

export interface EngineWorkerData {
  readonly options: EngineOptions;
  readonly arenaBytes: number | undefined;
  /** Test hook. */
  readonly faults: FaultPlan | undefined;
}

export type EngineCommand =
  | { id: number; method: 'tokenizer'; facts: TokenizerFacts }
  | { id: number; method: 'generate'; promptIds: number[]; request: IdRequest; cancel: Int32Array }
  | { id: number; method: 'score'; request: ScoreRequest }
  | { id: number; method: 'close' };

const port = parentPort!;
const data = workerData as EngineWorkerData;
let runtime: Runtime;
let session: Session;
let tokenizer: TokenizerFacts;

async function open(): Promise<void> {
  const { COLI_FAULT_READ } = process.env;
  const faults = data.faults ?? (COLI_FAULT_READ ? parseFaultPlan(COLI_FAULT_READ) : undefined);
  const hooks = { arenaBytes: data.arenaBytes, faults };
  const files = readModel(data.options, hooks.arenaBytes);
  port.postMessage({ id: 0, controlStrings: files.family.controlStrings });
  runtime = await Runtime.open(data.options, progress => port.postMessage({ id: 0, progress }), hooks, files);
  session = new Session(runtime);
  port.postMessage({ id: 0, done: true, value: runtime.info });
}

async function execute(command: EngineCommand): Promise<unknown> {
  switch (command.method) {
    case 'tokenizer':
      tokenizer = command.facts;
      return undefined;
    case 'generate': {
      runtime.cancelled = () => Atomics.load(command.cancel, 0) !== 0;
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
