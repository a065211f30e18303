/** Entry of the engine worker: takes requests between forward passes. Cancellation comes through shared memory. */

import { setImmediate } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { type ErrorWire, errorToWire, RequestError } from '../common/errors.ts';
import { isRewindable } from '../layers/session-memory.ts';
import type { Family } from '../models/family.ts';
import { type FaultPlan, parseFaultPlan } from '../storage/faults.ts';
import type { TelemetryShared } from '../telemetry/memory.ts';
import type { SpeedLimits } from '../telemetry/speed.ts';
import type { EngineInfo, EngineOptions, ScoreRequest, ScoreResult } from './api.ts';
import { Generation, type Order, type TokenizerFacts } from './generation.ts';
import { IdlePlacement, pinNote } from './idle-placement.ts';
import { DEFAULT_KV_DIR_BYTES, KvFiles } from './kv-files.ts';
import { withMirrorHint } from './mirrors.ts';
import { type ModelFiles, readModel } from './model-files.ts';
import { Routing } from './routing.ts';
import { Runtime } from './runtime.ts';
import { Scheduler } from './scheduler.ts';
import { largeBuffers, score } from './score.ts';
import { Session } from './session.ts';
import { SessionPool } from './session-pool.ts';
import { StatusWriter } from './status.ts';
import { IdleTelemetry } from './telemetry.ts';
import { UsageHistory } from './usage.ts';
import { usageMode } from './usage-mode.ts';

export interface EngineWorkerData {
  readonly options: EngineOptions;
  readonly arenaBytes: number | undefined;
  /** Test hook. */
  readonly faults: FaultPlan | undefined;
  readonly status: SharedArrayBuffer;
}

export type EngineCommand =
  | { id: number; method: 'tokenizer'; facts: TokenizerFacts }
  | { id: number; method: 'generate'; order: Order; cancel: Int32Array }
  | { id: number; method: 'score'; request: ScoreRequest }
  | { id: number; method: 'limits' }
  | { id: number; method: 'close' };

/** What the client must know of the family before it can read a text. */
export type FamilyTexts = Pick<Family, 'controlStrings' | 'chat'>;

/** What opening tells the client. */
export interface Opened {
  readonly info: EngineInfo;
  readonly generationConfig: Readonly<Record<string, unknown>> | null;
  readonly eosIds: readonly number[];
  readonly telemetry: TelemetryShared;
}

const port = parentPort!;
const data = workerData as EngineWorkerData;
const status = new StatusWriter(data.status);
let runtime: Runtime;
let sessions: readonly Session[];
let pool: SessionPool;
let scheduler: Scheduler;
let tokenizer: TokenizerFacts;
let history: UsageHistory | null = null;
let placement: IdlePlacement | null = null;
let routing: Routing;
let idleTelemetry: IdleTelemetry;
/** What needs the model for itself; it runs when no answer is being made. */
const alone: (() => void)[] = [];
let isRunning = false;
let isOpen = false;
const early: string[] = [];

async function open(): Promise<void> {
  const { COLI_FAULT_READ } = process.env;
  const faults = data.faults ?? (COLI_FAULT_READ ? parseFaultPlan(COLI_FAULT_READ) : undefined);
  const files = readModel(data.options, data.arenaBytes);
  requireSavable(data.options, files);
  const usage = usageMode(data.options.usage);
  if (usage !== 'off') history = new UsageHistory(files, usage, note);
  routing = new Routing(files, data.options, usage === 'on', note);
  const observers = [...(history ? [history.recent] : []), ...routing.observers];
  const policy = (slots: number) => routing.policy(slots);
  const hooks = { arenaBytes: data.arenaBytes, faults, observers, policy, onNote: note };
  const { controlStrings, chat } = files.family;
  port.postMessage({ id: 0, family: { controlStrings, chat } satisfies FamilyTexts });
  runtime = await Runtime.open(data.options, progress => port.postMessage({ id: 0, progress }), hooks, files);
  runtime.passDone = () => routing.passDone();
  if (history) {
    runtime.info.usage.tokens = Math.round(history.total().tokens);
    placement = new IdlePlacement(runtime, history);
  }
  const unpinned = pinNote(runtime.info, placement?.pinned ?? 0);
  if (unpinned !== null) note(unpinned);
  idleTelemetry = new IdleTelemetry(runtime, history);
  sessions = Array.from({ length: runtime.info.slots }, (_, slot) => new Session(runtime, slot));
  pool = new SessionPool(sessions, runtime.batch.cache, openKvFiles());
  scheduler = new Scheduler(runtime, pool, status);
  const { info, eosIds } = runtime;
  info.notes.push(...early);
  isOpen = true;
  const { generationConfig } = files.checkpoint;
  port.postMessage({
    id: 0,
    done: true,
    value: { info, generationConfig, eosIds, telemetry: runtime.telemetry.shared } satisfies Opened,
  });
}

/** Before anything is loaded. */
function requireSavable({ kvDir }: EngineOptions, { family, config, parts }: ModelFiles): void {
  if (kvDir === undefined || isRewindable(family.states(config, parts))) return;
  throw new RequestError(
    'KV_DIR_UNSUPPORTED',
    `--kv-dir cannot keep conversations of ${family.modelType} models: their memory is not just the keys and values of every token`,
    {
      hint: 'leave --kv-dir out: their conversations stay in memory while the server runs',
      details: { family: family.modelType },
    },
  );
}

function openKvFiles(): KvFiles | null {
  const { kvDir: directory, kvDirBytes: maxBytes = DEFAULT_KV_DIR_BYTES } = data.options;
  if (directory === undefined) return null;
  const { blockBytes } = runtime.batch.cache;
  return new KvFiles({
    directory,
    identity: Buffer.from(runtime.info.fingerprint, 'hex'),
    blockBytes,
    maxBytes,
    note,
  });
}

/** What is known before the engine is open belongs to its description. */
function note(line: string): void {
  if (isOpen) port.postMessage({ id: 0, note: line });
  else early.push(line);
}

/** No request runs. */
function safePoint(): void {
  placement?.safePoint();
  // before what is recent becomes a part of the past
  idleTelemetry.tell(false);
  history?.safePoint();
  routing.safePoint();
}

/** Steps until nothing is left to do; messages are taken in between. */
async function run(): Promise<void> {
  if (isRunning) return;
  isRunning = true;
  for (;;) {
    if (scheduler.step()) {
      placement?.busy();
      await setImmediate();
    } else if (alone.length > 0) alone.shift()!();
    else if (pool.saveSome()) await setImmediate();
    else {
      safePoint();
      if (!(await placement?.fill())) break;
    }
  }
  idleTelemetry.tell(true);
  status.experts(runtime.store.counters);
  isRunning = false;
}

function generate(id: number, order: Order, cancel: Int32Array): void {
  const sink = {
    event: (event: unknown) => port.postMessage({ id, event }),
    done: () => port.postMessage({ id, done: true }),
    fail: (error: unknown) => port.postMessage({ id, error: wireOf(error) }),
    cancelled: () => Atomics.load(cancel, 0) !== 0,
  };
  scheduler.add(new Generation(runtime, tokenizer, order, sink));
}

function wireOf(error: unknown): ErrorWire {
  return errorToWire(runtime?.readsMirrors ? withMirrorHint(error) : error);
}

/** Runs when no answer is being made. */
function whenAlone<T>(work: () => T): Promise<T> {
  return new Promise((resolve, reject) => {
    alone.push(() => {
      try {
        resolve(work());
      } catch (error) {
        reject(error);
      }
    });
  });
}

/** Scores from an empty session: what the first one held is forgotten. */
function scoreFirst(request: ScoreRequest): unknown {
  try {
    return score(runtime, sessions[0], request);
  } catch (error) {
    sessions[0].truncate(0);
    throw error;
  }
}

/** With the longest conversation in memory. */
function limits(): SpeedLimits {
  const longest = sessions.reduce((most, session) => (session.length > most.length ? session : most));
  return runtime.measureLimits(longest.length > 0 ? longest : null);
}

async function execute(command: Exclude<EngineCommand, { method: 'generate' }>): Promise<unknown> {
  switch (command.method) {
    case 'tokenizer':
      tokenizer = command.facts;
      return undefined;
    case 'score':
      return whenAlone(() => scoreFirst(command.request));
    case 'limits':
      return whenAlone(limits);
    case 'close':
      pool.close();
      placement?.close();
      history?.close();
      routing.close();
      await runtime.close();
      return undefined;
  }
}

port.on('message', async (command: EngineCommand) => {
  const { id } = command;
  try {
    if (command.method === 'generate') generate(id, command.order, command.cancel);
    else {
      const value = execute(command);
      void run();
      const result = await value;
      port.postMessage(
        { id, done: true, value: result },
        command.method === 'score' ? largeBuffers(result as ScoreResult) : [],
      );
      if (command.method === 'close') port.close();
    }
  } catch (error) {
    port.postMessage({ id, error: wireOf(error) });
  }
  void run();
});

open().catch(error => {
  port.postMessage({ id: 0, error: errorToWire(error) });
  port.close();
});
