/** Tokenizer and chat template on a thread of their own: the caller never tokenises and cannot be stopped by a text. */

import { Worker } from 'node:worker_threads';
import { type ColiError, errorFromWire, InternalError, RequestError, TokenizerError } from '../common/errors.ts';
import { endWorker } from '../common/waiting.ts';
import { workerUrl } from '../common/worker-url.ts';
import type { Rendered, RenderOptions } from './chat-encoder.ts';
import type { DecodeOptions } from './stream-decoder.ts';
import type { RawEncodeOptions, TextCommand, TextInfo, TextReply, TextWorkerData } from './text-protocol.ts';
import type { TokenBytes } from './token-bytes.ts';

export type { Rendered, RenderOptions } from './chat-encoder.ts';
export type { RawEncodeOptions, TextInfo } from './text-protocol.ts';

/** The largest published tokenizer (200,000 entries) needs 0.5 GB while it loads; the rest is room for one request. */
export const TEXT_WORKER_HEAP_MB = 1024;
/** Loading the largest published tokenizer takes 2 s on a slow core. */
export const OPEN_LIMIT_MS = 120_000;
/** One call. Encoding runs at about 1 MB/s, so this is several times the longest context. */
export const CALL_LIMIT_MS = 60_000;

export interface TextServiceOptions {
  /** Markers of the family's chat format. */
  readonly controlStrings?: readonly string[];
  /** Tokens with which the family's models end an answer; those that the tokenizer lacks do not matter. */
  readonly stopTokens?: readonly string[];
  /** For tests, and for plans with little memory. */
  readonly callLimitMs?: number;
  readonly heapMb?: number;
}

/** How long a running call whose caller has gone away may go on; nearly all take a few milliseconds. */
const CANCELLED_LIMIT_MS = 500;

/** What may be wrong when a short text takes for ever. */
const SUSPECT = {
  render: 'the chat template or a regular expression of tokenizer.json',
  encode: 'a regular expression of tokenizer.json',
  decode: 'tokenizer.json',
} as const;

interface Call {
  readonly command: TextCommand;
  /** It has been answered; what the worker says of it is not wanted. */
  isCancelled: boolean;
  resolve(value: unknown): void;
  reject(error: Error): void;
}

/**
 * Calls are served one after the other. A call that kills its worker or exceeds the wall limit fails alone: the next one
 * gets a new worker.
 */
export class TextService {
  readonly #data: TextWorkerData;
  readonly #callLimitMs: number;
  readonly #heapMb: number;
  readonly #waiting: Call[] = [];
  #running: Call | null = null;
  #worker: Worker | null = null;
  #timer: NodeJS.Timeout | null = null;
  #closed = false;
  #info!: TextInfo;
  #tokenBytes!: TokenBytes;

  /** Loads tokenizer and template of a model directory; throws TokenizerError or ModelFileError for what is wrong with them. */
  static async open(directory: string, options: TextServiceOptions = {}): Promise<TextService> {
    const service = new TextService(directory, options);
    await service.#start();
    return service;
  }

  private constructor(directory: string, options: TextServiceOptions) {
    const { controlStrings = [], stopTokens = [] } = options;
    this.#data = { directory, controlStrings, stopTokens };
    this.#callLimitMs = options.callLimitMs ?? CALL_LIMIT_MS;
    this.#heapMb = options.heapMb ?? TEXT_WORKER_HEAP_MB;
  }

  get info(): TextInfo {
    return this.#info;
  }

  /** In shared memory: StreamDecoder works with it on any thread. */
  get tokenBytes(): TokenBytes {
    return this.#tokenBytes;
  }

  /**
   * A conversation as text and ids. No text of the request becomes a control token.
   * Throws RequestError (CANCELLED) once `signal` is aborted; so does encode.
   */
  render(
    messages: readonly unknown[],
    tools?: readonly unknown[] | null,
    options: RenderOptions = {},
    signal?: AbortSignal,
  ): Promise<Rendered> {
    return this.#call({ method: 'render', messages, tools: tools ?? null, options }, signal) as Promise<Rendered>;
  }

  /** Raw text to ids, as Hugging Face does it: control tokens in the text are control tokens unless asked otherwise. */
  encode(text: string, options: RawEncodeOptions = {}, signal?: AbortSignal): Promise<number[]> {
    return this.#call({ method: 'encode', text, options }, signal) as Promise<number[]>;
  }

  decode(ids: readonly number[], options: DecodeOptions = {}): Promise<string> {
    return this.#call({ method: 'decode', ids, options }) as Promise<string>;
  }

  async close(): Promise<void> {
    this.#closed = true;
    // Those first, or the end of the running call would start them.
    for (const call of this.#waiting.splice(0)) call.reject(closedError());
    this.#abandon(closedError());
    await this.#stop();
  }

  #call(command: TextCommand, signal?: AbortSignal): Promise<unknown> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(closedError());
      if (signal?.aborted) return reject(cancelledError());
      const call: Call = { command, isCancelled: false, resolve, reject };
      if (signal) {
        const abort = () => this.#cancel(call);
        signal.addEventListener('abort', abort);
        const settled = () => signal.removeEventListener('abort', abort);
        call.resolve = value => {
          settled();
          resolve(value);
        };
        call.reject = error => {
          settled();
          reject(error);
        };
      }
      this.#waiting.push(call);
      this.#next();
    });
  }

  /**
   * Only its end stops a worker in the middle of a text, and starting another takes longer than nearly every text: the running
   * call goes on for nobody, for a while.
   */
  #cancel(call: Call): void {
    call.isCancelled = true;
    call.reject(cancelledError());
    const at = this.#waiting.indexOf(call);
    if (at >= 0) this.#waiting.splice(at, 1);
    // one whose worker is still being started is not sent
    if (this.#running !== call || !this.#timer) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      void this.#stop();
      this.#abandon(cancelledError());
    }, CANCELLED_LIMIT_MS);
  }

  /** Gives the next call to the worker, which is started again if the last call ended it. */
  #next(): void {
    if (this.#running || this.#waiting.length === 0) return;
    const call = this.#waiting.shift()!;
    this.#running = call;
    if (this.#worker) this.#send(call);
    else {
      this.#start().then(
        () => this.#running === call && this.#send(call),
        error => this.#running === call && this.#finish(() => call.reject(error)),
      );
    }
  }

  #send(call: Call): void {
    if (call.isCancelled) {
      this.#finish(() => {});
      return;
    }
    try {
      this.#worker!.postMessage(call.command);
    } catch (error) {
      const message = `the request cannot be passed on: ${(error as Error).message}`;
      const hint = 'messages and tools must be plain JSON data';
      this.#finish(() => call.reject(new RequestError('REQUEST_NOT_PLAIN', message, { hint })));
      return;
    }
    this.#timer = setTimeout(() => {
      const error = new TokenizerError(
        'TEXT_TIME_LIMIT',
        `a text took longer than ${this.#callLimitMs} ms to process`,
        {
          hint: `shorten the text; if it is short, ${SUSPECT[call.command.method]} is broken or hostile`,
        },
      );
      void this.#stop();
      this.#abandon(error);
    }, this.#callLimitMs);
  }

  #finish(settle: () => void): void {
    if (this.#timer) clearTimeout(this.#timer);
    this.#timer = null;
    this.#running = null;
    settle();
    this.#next();
  }

  /** The running call fails; what waits goes on. */
  #abandon(error: Error): void {
    const call = this.#running;
    if (call) this.#finish(() => call.reject(error));
  }

  async #stop(): Promise<void> {
    const worker = this.#worker;
    this.#worker = null;
    if (worker) await endWorker(worker);
  }

  #start(): Promise<void> {
    const worker = new Worker(workerUrl('text-worker', import.meta.url), {
      workerData: this.#data,
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: this.#heapMb, maxYoungGenerationSizeMb: 8 },
    });
    this.#worker = worker;
    return new Promise((resolve, reject) => {
      const late = () => {
        // A worker that was dropped while it loaded does not matter any longer.
        if (this.#worker === worker) this.#died(reject, 'loading takes too long');
      };
      const timer = setTimeout(late, OPEN_LIMIT_MS).unref();
      worker.once('message', (reply: TextReply) => {
        clearTimeout(timer);
        if (reply.kind !== 'ready') {
          void this.#stop();
          return reject(
            reply.kind === 'error' ? errorFromWire(reply.error) : new InternalError('TEXT_WORKER', 'no greeting'),
          );
        }
        this.#info = reply.info;
        this.#tokenBytes = reply.tokenBytes;
        worker.on('message', (answer: TextReply) => this.#receive(answer));
        resolve();
      });
      const failed = (reason: string) => {
        clearTimeout(timer);
        this.#died(reject, reason);
      };
      worker.once('error', error => failed(error.message));
      worker.once('exit', code => failed(`it ended with code ${code}`));
    });
  }

  #receive(reply: TextReply): void {
    const call = this.#running;
    if (!call) return;
    if (reply.kind === 'value') this.#finish(() => call.resolve(reply.value));
    else if (reply.kind === 'error') this.#finish(() => call.reject(errorFromWire(reply.error)));
  }

  #died(rejectOpen: (error: Error) => void, reason: string): void {
    const error = new InternalError('TEXT_WORKER_DIED', `the text worker died: ${reason}`, {
      hint: 'shorten the text; if it is short, please report this',
    });
    void this.#stop();
    rejectOpen(error);
    this.#abandon(error);
  }
}

function cancelledError(): ColiError {
  return new RequestError('CANCELLED', 'the request was cancelled');
}

function closedError(): ColiError {
  return new InternalError('TEXT_SERVICE_CLOSED', 'the text service is closed');
}
