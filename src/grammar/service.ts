/** Constraints for an engine, computed on a thread of their own: whatever a grammar does there, it can only fail its own request. */

import { type ColiError, errorFromWire, InternalError, RequestError } from '../common/errors.ts';
import type { Vocabulary } from './adapter.ts';
import {
  CLOSED,
  type Constraint,
  type ConstraintChannel,
  CRASHED,
  channelWords,
  type GrammarSpec,
  READY,
  RUNNING,
  STATUS,
  TIMED_OUT,
} from './api.ts';
import { GrammarThread } from './grammar-thread.ts';
import { COMPILING, type Faults, type GrammarReply, MASKING } from './protocol.ts';
import { LIMITS, type Limits, type Work } from './watchdog.ts';

export interface GrammarServiceOptions extends Vocabulary {
  /** For tests. */
  readonly limits?: Partial<Limits>;
  readonly faults?: Faults;
}

interface Entry {
  readonly id: number;
  readonly spec: GrammarSpec;
  readonly channel: ConstraintChannel;
  /** While it is compiled for the first time. */
  opening: { resolve(constraint: Constraint): void; reject(error: Error): void } | null;
  /** A worker that had done other things before has died of it; the next one decides. */
  retried: boolean;
}

/**
 * The worker starts with the first constraint. One that hangs or dies is replaced: the constraint it was working on fails, all others
 * are compiled again and brought to where their ids say, which nobody notices but for the time.
 */
export class GrammarService {
  readonly #options: GrammarServiceOptions;
  readonly #entries = new Map<number, Entry>();
  readonly #doorbell = new Int32Array(new SharedArrayBuffer(4));
  #thread: GrammarThread | null = null;
  /** Set while the last worker is being ended. */
  #ending: Promise<void> | null = null;
  #lastId = 0;
  #closed = false;

  /** Nothing is loaded yet. */
  constructor(options: GrammarServiceOptions) {
    this.#options = options;
  }

  /**
   * Room for `maxTokens` ids. Throws RequestError: what lower.ts names, GRAMMAR_TOO_SLOW, GRAMMAR_FAILED, or CANCELLED once `signal`
   * is aborted.
   */
  compile(spec: GrammarSpec, maxTokens: number, signal?: AbortSignal): Promise<Constraint> {
    if (this.#closed) return Promise.reject(closedError());
    if (signal?.aborted) return Promise.reject(cancelledError());
    const { promise, resolve, reject } = Promise.withResolvers<Constraint>();
    const { vocabSize } = this.#options;
    const words = new Int32Array(new SharedArrayBuffer(channelWords(maxTokens, vocabSize) * 4));
    words[READY] = -1;
    const channel = { words, doorbell: this.#doorbell, maxTokens, vocabSize };
    const entry: Entry = { id: ++this.#lastId, spec, channel, opening: { resolve, reject }, retried: false };
    const cancel = () => {
      this.#release(entry);
      reject(cancelledError());
    };
    signal?.addEventListener('abort', cancel, { once: true });
    this.#entries.set(entry.id, entry);
    this.#open(entry);
    return promise.finally(() => signal?.removeEventListener('abort', cancel));
  }

  /** Ends the worker; constraints that are still there get the status CLOSED. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const entry of [...this.#entries.values()]) this.#fail(entry, CLOSED, closedError());
    this.#end();
    await this.#ending;
  }

  #open({ id, spec, channel }: Entry): void {
    // Those that come while a worker is being ended are opened when the next one starts.
    if (this.#ending) return;
    if (!this.#thread) {
      this.#start();
      return;
    }
    try {
      this.#thread.send({ kind: 'open', id, spec, channel });
    } catch (error) {
      const message = `the required form cannot be passed on: ${(error as Error).message}`;
      const fault = new RequestError('REQUEST_NOT_PLAIN', message, { hint: 'schemas must be plain JSON data' });
      this.#fail(this.#entries.get(id)!, CRASHED, fault);
    }
  }

  /** A worker for everything that is there. */
  #start(): void {
    if (this.#closed || this.#entries.size === 0) return;
    const limits = { ...LIMITS, ...this.#options.limits };
    this.#thread = new GrammarThread(this.#options, this.#doorbell, limits, {
      reply: reply => this.#receive(reply),
      expired: work => this.#replace(work, TIMED_OUT),
      died: work => this.#replace(work, CRASHED),
    });
    for (const entry of [...this.#entries.values()]) this.#open(entry);
  }

  #receive(reply: GrammarReply): void {
    const entry = this.#entries.get(reply.id);
    if (!entry) return;
    if (reply.kind === 'refused') {
      this.#fail(entry, CRASHED, errorFromWire(reply.error));
      return;
    }
    entry.opening?.resolve({ channel: entry.channel, release: () => this.#release(entry) });
    entry.opening = null;
  }

  /** What the worker was at fails; without anything to blame, everything does. */
  #replace(work: Work, status: number): void {
    const guilty = this.#entries.get(work.id);
    const isWork = work.phase === COMPILING || work.phase === MASKING;
    // A used worker may have run out of memory because of what it kept for others.
    const again =
      guilty && status === CRASHED && work.phase === COMPILING && !guilty.retried && this.#thread!.hasServed;
    if (again) guilty.retried = true;
    else if (guilty) this.#fail(guilty, status, status === TIMED_OUT ? tooSlowError() : failedError());
    else if (!isWork) for (const entry of [...this.#entries.values()]) this.#fail(entry, status, diedError());
    this.#end();
    void this.#ending!.then(() => this.#start());
  }

  #end(): void {
    const thread = this.#thread;
    this.#thread = null;
    if (!thread) return;
    this.#ending = thread.end().finally(() => {
      this.#ending = null;
    });
  }

  #fail(entry: Entry, status: number, error: ColiError): void {
    this.#entries.delete(entry.id);
    entry.opening?.reject(error);
    entry.opening = null;
    const { words } = entry.channel;
    Atomics.compareExchange(words, STATUS, RUNNING, status);
    Atomics.notify(words, READY);
    this.#thread?.send({ kind: 'release', id: entry.id });
  }

  #release(entry: Entry): void {
    if (this.#entries.delete(entry.id)) this.#thread?.send({ kind: 'release', id: entry.id });
  }
}

function cancelledError(): ColiError {
  return new RequestError('CANCELLED', 'the request was cancelled');
}

function closedError(): ColiError {
  return new InternalError('GRAMMAR_SERVICE_CLOSED', 'the grammar service is closed');
}

function tooSlowError(): ColiError {
  return new RequestError('GRAMMAR_TOO_SLOW', 'the schema or grammar takes too long to compile', {
    hint: 'simplify it: fewer alternatives and optional properties, smaller repetitions',
  });
}

function failedError(): ColiError {
  return new RequestError('GRAMMAR_FAILED', 'the schema or grammar is more than the grammar library can take', {
    hint: 'simplify it: fewer alternatives, less nesting, smaller repetitions',
  });
}

function diedError(): ColiError {
  return new InternalError('GRAMMAR_WORKER_DIED', 'the grammar worker died', { hint: 'please report this' });
}
