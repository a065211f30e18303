/** The engine for its users: a text worker and an engine worker behind one object. The calling thread never computes. */

import { Worker } from 'node:worker_threads';
import { type ColiError, type ErrorWire, errorFromWire, InternalError, RequestError } from '../common/errors.ts';
import { workerUrl } from '../common/worker-url.ts';
import type { FaultPlan } from '../storage/faults.ts';
import { TextService } from '../tokenizer/text-service.ts';
import type {
  EncodeOptions,
  Engine,
  EngineInfo,
  EngineOptions,
  GenerateEvent,
  GenerateRequest,
  OpenProgress,
  Prompt,
  ScoreRequest,
  ScoreResult,
} from './api.ts';
import type { EngineCommand, EngineWorkerData } from './engine-worker.ts';
import type { TokenizerFacts } from './generate.ts';

/** Heap of the engine worker: tensor tables and one request; all weights live outside it. */
const ENGINE_LIMITS = { maxOldGenerationSizeMb: 1024, maxYoungGenerationSizeMb: 4 };

/** How long close() lets a generation notice that it should stop before it ends the thread. */
const CLOSE_GRACE_MS = 5000;

/** Texts up to this size are always tokenised: a refusal then names the exact number of tokens. */
const COUNTED_CHARACTERS = 65_536;

/** Test hooks that never come from a user. */
export interface EngineHooks {
  readonly arenaBytes?: number;
  readonly faults?: FaultPlan;
}

interface Reply {
  id: number;
  controlStrings?: readonly string[];
  progress?: OpenProgress;
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
 * (ModelFileError, ConfigError, PlanError, KernelError, TokenizerError, StorageError).
 */
export async function openEngine(
  options: EngineOptions,
  onProgress: (progress: OpenProgress) => void = () => {},
  hooks: EngineHooks = {},
): Promise<Engine> {
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
  readonly #worker: Worker;
  readonly #onProgress: (progress: OpenProgress) => void;
  readonly #pending = new Map<number, Pending>();
  #onControlStrings: (controlStrings: readonly string[]) => void = () => {};
  /** Bytes. */
  #longestToken = 1;
  #lastId = 0;
  #closed: Promise<void> | null = null;
  /** Why nothing can be asked any more. */
  #ended: InternalError | null = null;
  /** Generations take their turn. */
  #turn: Promise<unknown> = Promise.resolve();
  /** One word for each generation that runs or waits; 1 = stop. */
  readonly #cancels = new Set<Int32Array>();

  constructor(options: EngineOptions, hooks: EngineHooks, onProgress: (progress: OpenProgress) => void) {
    const workerData: EngineWorkerData = { options, arenaBytes: hooks.arenaBytes, faults: hooks.faults };
    this.#onProgress = onProgress;
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
    this.#onControlStrings = controlStrings => {
      text = TextService.open(directory, { controlStrings });
      // its failure is looked at when the engine is done
      text.catch(() => {});
    };
    const opened = new Promise((resolve, reject) => this.#pending.set(0, { resolve, reject }));
    const [info] = await Promise.allSettled([opened]);
    const [service] = await Promise.allSettled([text]);
    if (service.status === 'fulfilled') this.#text = service.value!;
    if (info.status === 'rejected') throw info.reason;
    if (service.status === 'rejected') throw service.reason;
    this.info = info.value as EngineInfo;
    const { vocabSize, endOfTurnIds } = this.#text.info;
    const { tokenBytes } = this.#text;
    for (let id = 0; id < tokenBytes.offsets.length - 1; id++) {
      this.#longestToken = Math.max(this.#longestToken, tokenBytes.offsets[id + 1] - tokenBytes.offsets[id]);
    }
    const facts: TokenizerFacts = { tokenBytes, vocabSize, endOfTurnIds };
    await this.#call({ method: 'tokenizer', facts });
  }

  async *generate(request: GenerateRequest, signal?: AbortSignal): AsyncIterable<GenerateEvent> {
    if (this.#closed) throw closedError();
    const { prompt, ...rest } = request;
    // A prompt that was cancelled while it was read has no ids; any will do, because nothing of it is computed.
    const read = await this.#encode(prompt, false, signal);
    const promptIds = read ?? [0];
    const cancel = new Int32Array(new SharedArrayBuffer(4));
    const abort = () => Atomics.store(cancel, 0, 1);
    if (signal?.aborted || this.#closed) abort();
    signal?.addEventListener('abort', abort);
    this.#cancels.add(cancel);
    const queue = new EventQueue();
    const command: WithoutId<EngineCommand> = { method: 'generate', promptIds, request: rest, cancel };
    const run = this.#turn.then(() =>
      this.#call(command, event => queue.push(read || event.type !== 'start' ? event : { ...event, promptIds: [] })),
    );
    this.#turn = run.catch(() => {});
    run
      .then(
        () => queue.end(),
        error => queue.fail(error),
      )
      .finally(() => this.#cancels.delete(cancel));
    try {
      yield* queue.events();
    } finally {
      // a reader that stops early stops the work too
      abort();
      signal?.removeEventListener('abort', abort);
    }
  }

  score(request: ScoreRequest): Promise<ScoreResult> {
    const run = this.#turn.then(() => this.#call({ method: 'score', request }));
    this.#turn = run.catch(() => {});
    return run as Promise<ScoreResult>;
  }

  async encode(prompt: Prompt, { anyLength = false }: EncodeOptions = {}): Promise<number[]> {
    return (await this.#encode(prompt, anyLength))!;
  }

  /** null when `signal` is aborted before the ids are there. */
  async #encode(prompt: Prompt, anyLength: boolean, signal?: AbortSignal): Promise<number[] | null> {
    if ('ids' in prompt) return [...prompt.ids];
    if (!anyLength) refuseHugeText(prompt, this.info, this.#longestToken);
    try {
      if ('text' in prompt) return await this.#text.encode(prompt.text, {}, signal);
      return (await this.#text.render(prompt.messages, prompt.tools, {}, signal)).ids;
    } catch (error) {
      if (this.#closed) throw closedError();
      if (signal?.aborted && (error as ColiError).code === 'CANCELLED') return null;
      throw error;
    }
  }

  decode(ids: readonly number[]): Promise<string> {
    return this.#text.decode(ids);
  }

  close(): Promise<void> {
    this.#closed ??= this.#stop();
    return this.#closed;
  }

  /** Generations that run or wait end as cancelled. */
  async #stop(): Promise<void> {
    for (const cancel of this.#cancels) Atomics.store(cancel, 0, 1);
    await this.#text?.close();
    if (this.info) await this.#finish();
    this.#ended ??= closedError();
    await this.#worker.terminate();
  }

  /** Lets the worker close its files and threads; not for ever, because its disk may hang. */
  async #finish(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const grace = new Promise(resolve => {
      timer = setTimeout(resolve, CLOSE_GRACE_MS);
    });
    const closed = this.#turn.then(() => this.#call({ method: 'close' })).catch(() => {});
    await Promise.race([closed, grace]);
    clearTimeout(timer);
  }

  #call(command: WithoutId<EngineCommand>, onEvent?: (event: GenerateEvent) => void): Promise<unknown> {
    if (this.#ended) return Promise.reject(this.#ended);
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#pending.set(id, { resolve, reject, onEvent });
      this.#worker.postMessage({ ...command, id });
    });
  }

  #receive({ id, controlStrings, progress, event, done, value, error }: Reply): void {
    const pending = this.#pending.get(id);
    if (controlStrings) this.#onControlStrings(controlStrings);
    if (progress) this.#onProgress(progress);
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

/**
 * A text that cannot fit the context even in the longest tokens is refused before it is tokenised, which would take a
 * hundred times its size in memory.
 */
function refuseHugeText(prompt: Prompt, { context, maxContext }: EngineInfo, longestToken: number): void {
  if ('ids' in prompt) return;
  const characters =
    'text' in prompt
      ? prompt.text.length
      : prompt.messages.reduce((sum, { content }) => sum + String(content).length, 0);
  const most = context * longestToken;
  if (characters <= Math.max(most, COUNTED_CHARACTERS)) return;
  throw new RequestError(
    'CONTEXT_EXCEEDED',
    `the prompt has ${characters} characters; a context of ${context} tokens holds less than ${most}`,
    {
      hint: `shorten the prompt${context < maxContext ? ' or use a larger --ctx' : '; this model takes no larger context'}`,
      details: { characters, context },
    },
  );
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
