/** The engine for its users: a text worker and an engine worker behind one object. The calling thread never computes. */

import { Worker } from 'node:worker_threads';
import { type ColiError, type ErrorWire, errorFromWire, InternalError } from '../common/errors.ts';
import { keepYoungSpacesSmall } from '../common/heap.ts';
import { within } from '../common/waiting.ts';
import { workerUrl } from '../common/worker-url.ts';
import type { FaultPlan } from '../storage/faults.ts';
import { TelemetryReader } from '../telemetry/reader.ts';
import type { SpeedLimits } from '../telemetry/speed.ts';
import { TextService } from '../tokenizer/text-service.ts';
import type {
  EncodeOptions,
  Engine,
  EngineInfo,
  EngineOptions,
  EngineStatus,
  GenerateEvent,
  GenerateRequest,
  OpenProgress,
  PreparedRequest,
  Prompt,
  ScoreRequest,
  ScoreResult,
  TextFacts,
} from './api.ts';
import type { EngineCommand, EngineWorkerData, FamilyTexts, Opened } from './engine-worker.ts';
import type { TokenizerFacts } from './generation.ts';
import { Prepared, Preparer } from './preparer.ts';
import { checkOptions, checkScoreRequest } from './shapes.ts';
import { createStatus, readStatus } from './status.ts';

/** Heap of the engine worker: tensor tables and one request; all weights live outside it. */
const ENGINE_LIMITS = { maxOldGenerationSizeMb: 1024, maxYoungGenerationSizeMb: 4 };

/** How long close() lets a generation notice that it should stop before it ends the thread. */
const CLOSE_GRACE_MS = 5000;

/** A disk that damages everything must not fill the memory with lines about it. */
const MAX_NOTES = 100;

export interface EngineHooks {
  /** Lines worth telling that come up later, about saved keys and values. */
  readonly onNote?: (line: string) => void;
  /** These two are for tests. */
  readonly arenaBytes?: number;
  readonly faults?: FaultPlan;
}

interface Reply {
  id: number;
  family?: FamilyTexts;
  progress?: OpenProgress;
  note?: string;
  event?: GenerateEvent;
  done?: boolean;
  value?: unknown;
  error?: ErrorWire;
}

interface Pending {
  resolve(value: unknown): void;
  reject(error: Error): void;
  onEvent?(event: GenerateEvent): void;
}

type WithoutId<T> = T extends unknown ? Omit<T, 'id'> : never;

/**
 * Opens a model: plans, loads the resident weights and the tokenizer. Throws the ColiError of whatever is wrong
 * (RequestError, ModelFileError, ConfigError, PlanError, KernelError, TokenizerError, StorageError).
 */
export async function openEngine(
  options: EngineOptions,
  onProgress: (progress: OpenProgress) => void = () => {},
  hooks: EngineHooks = {},
): Promise<Engine> {
  checkOptions(options);
  keepYoungSpacesSmall();
  const engine = new EngineClient(options, hooks, onProgress);
  try {
    await engine.open(options.model);
    return engine;
  } catch (error) {
    await engine.close();
    throw error;
  }
}

class EngineClient implements Engine {
  info!: EngineInfo;
  #text!: TextService;
  #telemetry!: TelemetryReader;
  #preparer!: Preparer;
  readonly #worker: Worker;
  readonly #onProgress: (progress: OpenProgress) => void;
  readonly #onNote: (line: string) => void;
  readonly #status = createStatus();
  readonly #constraints: boolean;
  readonly #pending = new Map<number, Pending>();
  #onFamily: (family: FamilyTexts) => void = () => {};
  #chat!: FamilyTexts['chat'];
  #lastId = 0;
  #closed: Promise<void> | null = null;
  /** Why nothing can be asked any more. */
  #ended: InternalError | null = null;
  /** One word for each generation that runs or waits; 1 = stop. */
  readonly #cancels = new Set<Int32Array>();

  constructor(options: EngineOptions, hooks: EngineHooks, onProgress: (progress: OpenProgress) => void) {
    const { arenaBytes, faults, onNote = () => {} } = hooks;
    const workerData: EngineWorkerData = { options, arenaBytes, faults, status: this.#status };
    this.#onProgress = onProgress;
    this.#constraints = options.constraints ?? false;
    this.#onNote = onNote;
    this.#worker = new Worker(workerUrl('engine-worker', import.meta.url), {
      workerData,
      // flags of the caller's own start, such as --eval, are not for this thread
      execArgv: [],
      resourceLimits: ENGINE_LIMITS,
    });
    this.#worker.on('message', (reply: Reply) => this.#receive(reply));
    this.#worker.on('error', error => this.#fail(error));
    this.#worker.on('exit', () => this.#fail(new Error('the engine worker ended')));
  }

  /**
   * Waits for the engine and the tokenizer, and introduces one to the other. Only the engine's thread reads the model: its
   * tables would take the same memory here again.
   */
  async open(directory: string): Promise<void> {
    let text: Promise<TextService> | undefined;
    this.#onFamily = ({ controlStrings, chat }) => {
      this.#chat = chat;
      text = TextService.open(directory, { controlStrings, stopTokens: chat.stopTokens });
      // its failure is looked at when the engine is done
      text.catch(() => {});
    };
    const opening = new Promise((resolve, reject) => this.#pending.set(0, { resolve, reject }));
    const [opened] = await Promise.allSettled([opening]);
    const [service] = await Promise.allSettled([text]);
    if (service.status === 'fulfilled') this.#text = service.value!;
    if (opened.status === 'rejected') throw opened.reason;
    if (service.status === 'rejected') throw service.reason;
    const { info, generationConfig, eosIds, telemetry } = opened.value as Opened;
    this.info = info;
    this.#telemetry = new TelemetryReader(telemetry);
    this.#preparer = new Preparer(this.#text, info, { generationConfig, eosIds, constraints: this.#constraints });
    const { vocabSize, endOfTurnIds } = this.#text.info;
    const facts: TokenizerFacts = { tokenBytes: this.#text.tokenBytes, vocabSize, endOfTurnIds };
    await this.#call({ method: 'tokenizer', facts });
  }

  get text(): TextFacts {
    return { ...this.#text.info, chat: this.#chat };
  }

  get telemetry(): TelemetryReader {
    return this.#telemetry;
  }

  measureLimits(): Promise<SpeedLimits> {
    return this.#call({ method: 'limits' }) as Promise<SpeedLimits>;
  }

  get status(): EngineStatus {
    if (this.#ended) throw this.#ended;
    return readStatus(this.#status);
  }

  async prepare(request: GenerateRequest, signal?: AbortSignal): Promise<Prepared> {
    if (this.#closed) throw closedError();
    try {
      return await this.#preparer.prepare(request, signal);
    } catch (error) {
      throw this.#closed ? closedError() : error;
    }
  }

  async *generate(
    request: GenerateRequest | PreparedRequest,
    signal?: AbortSignal,
    onEnd: () => void = () => {},
  ): AsyncIterable<GenerateEvent> {
    const isPrepared = request instanceof Prepared;
    const prepared = isPrepared ? request : await this.#prepareUnlessAborted(request as GenerateRequest, signal);
    const order = prepared.spend();
    const queue = new EventQueue();
    const cancel = new Int32Array(new SharedArrayBuffer(4));
    const abort = () => Atomics.store(cancel, 0, 1);
    if (signal?.aborted || this.#closed) abort();
    signal?.addEventListener('abort', abort);
    this.#cancels.add(cancel);
    this.#call({ method: 'generate', order, cancel }, event => queue.push(event))
      .then(
        () => queue.end(),
        error => queue.fail(error),
      )
      .finally(() => {
        this.#cancels.delete(cancel);
        prepared.release();
        onEnd();
      });
    try {
      yield* queue.events();
    } finally {
      // a reader that stops early stops the work too
      abort();
      signal?.removeEventListener('abort', abort);
    }
  }

  /** A request that is cancelled while its prompt is read has no ids; any will do, because nothing of it is computed. */
  async #prepareUnlessAborted(request: GenerateRequest, signal?: AbortSignal): Promise<Prepared> {
    try {
      return await this.prepare(request, signal);
    } catch (error) {
      if (!signal?.aborted || (error as ColiError).code !== 'CANCELLED') throw error;
      return this.#preparer.nothing(request);
    }
  }

  async score(request: ScoreRequest): Promise<ScoreResult> {
    checkScoreRequest(request, this.info.vocabSize);
    return this.#call({ method: 'score', request }) as Promise<ScoreResult>;
  }

  async encode(prompt: Prompt, { anyLength = false }: EncodeOptions = {}): Promise<number[]> {
    return (await this.#preparer.render(prompt, anyLength)).ids;
  }

  async render(prompt: Prompt): Promise<{ text: string; ids: number[] }> {
    return this.#preparer.render(prompt, false);
  }

  decode(ids: readonly number[]): Promise<string> {
    return this.#text.decode(ids);
  }

  tokenBytes(id: number): Uint8Array {
    const { offsets, bytes } = this.#text.tokenBytes;
    return bytes.subarray(offsets[id] ?? 0, offsets[id + 1] ?? 0);
  }

  close(): Promise<void> {
    this.#closed ??= this.#stop();
    return this.#closed;
  }

  /** Generations that run or wait end as cancelled. */
  async #stop(): Promise<void> {
    for (const cancel of this.#cancels) Atomics.store(cancel, 0, 1);
    await Promise.all([this.#text?.close(), this.#preparer?.close()]);
    if (this.info) await this.#finish();
    this.#ended ??= closedError();
    await this.#worker.terminate();
  }

  /** Lets the worker close its files and threads; not for ever, because its disk may hang. */
  async #finish(): Promise<void> {
    const closed = this.#call({ method: 'close' }).catch(() => {});
    await within(CLOSE_GRACE_MS, closed);
  }

  #call(command: WithoutId<EngineCommand>, onEvent?: (event: GenerateEvent) => void): Promise<unknown> {
    if (this.#ended) return Promise.reject(this.#ended);
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject, onEvent });
      this.#worker.postMessage({ ...command, id });
    });
  }

  #takeNote(line: string): void {
    if (this.info.notes.length < MAX_NOTES) this.info.notes.push(line);
    this.#onNote(line);
  }

  #receive({ id, family, progress, note, event, done, value, error }: Reply): void {
    const pending = this.#pending.get(id);
    if (family) this.#onFamily(family);
    if (progress) this.#onProgress(progress);
    if (note) this.#takeNote(note);
    if (event) pending?.onEvent?.(event);
    if (!done && !error) return;
    this.#pending.delete(id);
    if (error) pending?.reject(errorFromWire(error));
    else pending?.resolve(value);
  }

  /** The worker is gone: nobody waits for it any longer. */
  #fail(cause: Error): void {
    this.#ended ??= this.#closed
      ? closedError()
      : new InternalError('ENGINE_DIED', `the engine stopped: ${cause.message}`, {
          hint: 'open the model again; if it stops again, please report it, with the stack that COLI_DEBUG=1 prints',
          cause,
        });
    for (const { reject } of this.#pending.values()) reject(this.#ended);
    this.#pending.clear();
  }
}

function closedError(): InternalError {
  return new InternalError('ENGINE_CLOSED', 'the engine is closed');
}

/** Events from a callback, read as an async iterable. */
class EventQueue {
  readonly #items: GenerateEvent[] = [];
  #wake: () => void = () => {};
  #ended = false;
  #error: unknown = null;

  push(event: GenerateEvent): void {
    this.#items.push(event);
    this.#wake();
  }

  end(): void {
    this.#ended = true;
    this.#wake();
  }

  fail(error: unknown): void {
    this.#error = error;
    this.end();
  }

  async *events(): AsyncGenerator<GenerateEvent> {
    for (;;) {
      while (this.#items.length > 0) yield this.#items.shift()!;
      if (this.#ended) break;
      await new Promise<void>(resolve => {
        this.#wake = resolve;
      });
    }
    if (this.#error !== null) throw this.#error;
  }
}
