/**
 * The queue in front of the engine: bounded, and fair between clients. Clients take turns, and within one its requests go first in,
 * first out, so that fifty requests of one program delay a single one of another by one place, not by fifty.
 */

import { RequestError } from '../common/errors.ts';
import type { Admission, Place } from './turn.ts';

export interface QueueLimits {
  /** Requests that run together. */
  readonly capacity: number;
  /** Requests that may wait. */
  readonly maxQueue: number;
  readonly queueTimeoutMs: number;
}

/** Counters since the start, and what is so now. */
export interface QueueCounts {
  readonly active: number;
  readonly queued: number;
  readonly capacity: number;
  readonly maxQueue: number;
  /** Were given a place. */
  readonly admitted: number;
  /** Left the place they were given, well or with an error. */
  readonly completed: number;
  /** Were refused at the door: full, or stopping. */
  readonly rejected: number;
  /** Waited too long. */
  readonly timedOut: number;
  /** Whose client went away, or that the server ended: while they waited, or while they ran. */
  readonly cancelled: number;
}

/** setTimeout and clearTimeout, or a test's own clock. */
export interface Timers {
  set(action: () => void, ms: number): unknown;
  clear(timer: unknown): void;
}

const SYSTEM_TIMERS: Timers = {
  set: (action, ms) => setTimeout(action, ms),
  clear: timer => clearTimeout(timer as NodeJS.Timeout),
};

type Counter = 'admitted' | 'completed' | 'rejected' | 'timedOut' | 'cancelled';

interface Waiter {
  readonly client: string;
  grant(): void;
  /** Sends it away, unless it does not wait any more. */
  refuse(reason: unknown, counter: Counter): void;
}

export class AdmissionQueue implements Admission {
  readonly #limits: QueueLimits;
  readonly #timers: Timers;
  /** Clients with requests that wait, in the order in which it is their turn. No list is empty. */
  readonly #waiting = new Map<string, Waiter[]>();
  #queued = 0;
  /** Client -> requests of it that run. */
  readonly #running = new Map<string, number>();
  #active = 0;
  /** Requests that are still being checked. */
  #preparing = 0;
  #stopped: RequestError | null = null;
  readonly #counts: Record<Counter, number> = { admitted: 0, completed: 0, rejected: 0, timedOut: 0, cancelled: 0 };
  #whenIdle: (() => void)[] = [];

  constructor(limits: QueueLimits, timers: Timers = SYSTEM_TIMERS) {
    this.#limits = limits;
    this.#timers = timers;
  }

  get counts(): QueueCounts {
    const { capacity, maxQueue } = this.#limits;
    return { active: this.#active, queued: this.#queued, capacity, maxQueue, ...this.#counts };
  }

  /** Why nothing is taken any more; null while it is. */
  get stopped(): RequestError | null {
    return this.#stopped;
  }

  enter(client: string, signal: AbortSignal, isReady = true): Place {
    if (this.#stopped) throw this.#reject(this.#stopped);
    const { capacity, maxQueue } = this.#limits;
    if (this.#active + this.#queued + this.#preparing >= capacity + maxQueue) throw this.#reject(queueFull(maxQueue));
    if (signal.aborted) {
      this.#counts.cancelled++;
      throw signal.reason;
    }
    return isReady ? this.#join(client, signal) : this.#prepare(client, signal);
  }

  /** A place at once, or in the queue. */
  #join(client: string, signal: AbortSignal): Place {
    if (this.#active < this.#limits.capacity) return once(Promise.resolve(), this.#admit(client, signal));
    return this.#wait(client, signal);
  }

  /** Joins when it is ready. What is given up before is in no counter, unless its client went away. */
  #prepare(client: string, signal: AbortSignal): Place {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    promise.catch(() => {});
    let joined: Place | null = null;
    this.#preparing++;
    const place = once(promise, () => {
      if (joined) return joined.leave();
      this.#preparing--;
      if (signal.aborted) this.#counts.cancelled++;
    });
    const ready = () => {
      if (joined || place.hasLeft()) return;
      if (this.#stopped || signal.aborted) {
        reject(this.#stopped ? this.#reject(this.#stopped) : signal.reason);
        return;
      }
      this.#preparing--;
      joined = this.#join(client, signal);
      joined.granted.then(resolve, reject);
    };
    return { granted: place.granted, ready, leave: place.leave };
  }

  /** Takes no more requests and sends away those that wait; the ones that run go on. */
  stop(reason: RequestError): void {
    this.#stopped = reason;
    for (const waiter of [...this.#waiting.values()].flat()) waiter.refuse(reason, 'rejected');
  }

  /** Resolves when nothing runs. */
  idle(): Promise<void> {
    return this.#active === 0 ? Promise.resolve() : new Promise(resolve => this.#whenIdle.push(resolve));
  }

  #wait(client: string, signal: AbortSignal): Place {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    // a place that is left before it is granted has nobody who listens
    promise.catch(() => {});
    let release: (() => void) | null = null;
    const settle = () => {
      this.#timers.clear(timer);
      signal.removeEventListener('abort', abort);
    };
    const waiter: Waiter = {
      client,
      grant: () => {
        settle();
        release = this.#admit(client, signal);
        resolve();
      },
      refuse: (reason, counter) => {
        if (!this.#remove(waiter)) return;
        settle();
        this.#counts[counter]++;
        reject(reason);
      },
    };
    const { queueTimeoutMs } = this.#limits;
    const timer = this.#timers.set(() => waiter.refuse(queueTimeout(queueTimeoutMs), 'timedOut'), queueTimeoutMs);
    const abort = () => waiter.refuse(signal.reason, 'cancelled');
    signal.addEventListener('abort', abort, { once: true });
    this.#add(waiter);
    return once(promise, () => {
      if (release) release();
      else waiter.refuse(new RequestError('CANCELLED', 'the request was given up while it waited'), 'cancelled');
    });
  }

  /** Takes a place; returns what gives it back. */
  #admit(client: string, signal: AbortSignal): () => void {
    this.#active++;
    this.#running.set(client, (this.#running.get(client) ?? 0) + 1);
    this.#counts.admitted++;
    return () => {
      this.#active--;
      const left = this.#running.get(client)! - 1;
      if (left > 0) this.#running.set(client, left);
      else this.#running.delete(client);
      this.#counts[signal.aborted ? 'cancelled' : 'completed']++;
      this.#next();
      if (this.#active > 0) return;
      for (const tell of this.#whenIdle.splice(0)) tell();
    };
  }

  /** Gives the free place to the client that has the fewest; among equals to the one whose turn it is. */
  #next(): void {
    let client: string | null = null;
    let fewest = Number.POSITIVE_INFINITY;
    for (const candidate of this.#waiting.keys()) {
      const running = this.#running.get(candidate) ?? 0;
      if (running >= fewest) continue;
      client = candidate;
      fewest = running;
    }
    if (client === null) return;
    const waiters = this.#waiting.get(client)!;
    const waiter = waiters.shift()!;
    this.#queued--;
    // its next turn comes after everybody else's
    this.#waiting.delete(client);
    if (waiters.length > 0) this.#waiting.set(client, waiters);
    waiter.grant();
  }

  #add(waiter: Waiter): void {
    const others = this.#waiting.get(waiter.client);
    if (others) others.push(waiter);
    else this.#waiting.set(waiter.client, [waiter]);
    this.#queued++;
  }

  /** false when it does not wait. */
  #remove(waiter: Waiter): boolean {
    const waiters = this.#waiting.get(waiter.client);
    const at = waiters?.indexOf(waiter) ?? -1;
    if (at < 0) return false;
    waiters!.splice(at, 1);
    this.#queued--;
    if (waiters!.length === 0) this.#waiting.delete(waiter.client);
    return true;
  }

  #reject(reason: RequestError): RequestError {
    this.#counts.rejected++;
    return reason;
  }
}

function once(granted: Promise<void>, leave: () => void): Place & { hasLeft(): boolean } {
  let left = false;
  return {
    granted,
    ready: () => {},
    hasLeft: () => left,
    leave: () => {
      if (left) return;
      left = true;
      leave();
    },
  };
}

function queueFull(maxQueue: number): RequestError {
  const many = maxQueue === 1 ? '1 request is' : `${maxQueue} requests are`;
  return new RequestError('QUEUE_FULL', `${many} waiting already, the most this server takes`, {
    hint: 'try again in a moment, or start the server with a larger --max-queue',
    details: { maxQueue },
  });
}

function queueTimeout(ms: number): RequestError {
  return new RequestError(
    'QUEUE_TIMEOUT',
    `no place became free within ${ms / 1000} ${ms === 1000 ? 'second' : 'seconds'}`,
    {
      hint: 'try again later, or start the server with more --slots or a longer --queue-timeout',
      details: { queueTimeoutMs: ms },
    },
  );
}
