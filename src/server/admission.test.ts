import { describe, expect, test } from 'vitest';
import { RequestError } from '../common/errors.ts';
import { AdmissionQueue, type Timers } from './admission.ts';

class TestTimers implements Timers {
  #now = 0;
  readonly #timers = new Map<number, { at: number; action: () => void }>();
  #last = 0;

  set(action: () => void, ms: number): number {
    this.#timers.set(++this.#last, { at: this.#now + ms, action });
    return this.#last;
  }

  clear(timer: unknown): void {
    this.#timers.delete(timer as number);
  }

  get size(): number {
    return this.#timers.size;
  }

  pass(ms: number): void {
    this.#now += ms;
    for (const [id, { at, action }] of [...this.#timers]) {
      if (at > this.#now || !this.#timers.delete(id)) continue;
      action();
    }
  }
}

const never = new AbortController().signal;

function queue(capacity: number, maxQueue: number) {
  const timers = new TestTimers();
  return { timers, queue: new AdmissionQueue({ capacity, maxQueue, queueTimeoutMs: 1000 }, timers) };
}

/** Enters and notes the name when the place is granted. */
function enter(q: AdmissionQueue, client: string, name: string, order: string[], signal = never) {
  const place = q.enter(client, signal);
  place.granted.then(() => order.push(name)).catch(() => {});
  return place;
}

const settled = () => new Promise<void>(resolve => setImmediate(resolve));

describe('admission', () => {
  test('grants up to the capacity at once, the rest in order of arrival', async () => {
    const { queue: q } = queue(2, 10);
    const order: string[] = [];
    const places = ['1', '2', '3', '4'].map(name => enter(q, 'a', name, order));
    await settled();
    expect(order).toEqual(['1', '2']);
    places[1].leave();
    await settled();
    expect(order).toEqual(['1', '2', '3']);
    places[0].leave();
    places[2].leave();
    places[3].leave();
    await settled();
    expect(order).toEqual(['1', '2', '3', '4']);
    expect(q.counts).toMatchObject({ active: 0, queued: 0, admitted: 4, completed: 4 });
  });

  test('requests of one client do not push aside those of another', async () => {
    const { queue: q } = queue(1, 100);
    const order: string[] = [];
    const running = [enter(q, 'a', 'a0', order)];
    for (let i = 1; i <= 5; i++) running.push(enter(q, 'a', `a${i}`, order));
    running.push(enter(q, 'b', 'b1', order), enter(q, 'c', 'c1', order), enter(q, 'b', 'b2', order));
    for (let round = 0; round < running.length; round++) {
      await settled();
      const last = order.at(-1)!;
      const names = ['a0', 'a1', 'a2', 'a3', 'a4', 'a5', 'b1', 'c1', 'b2'];
      running[names.indexOf(last)].leave();
    }
    expect(order).toEqual(['a0', 'a1', 'b1', 'c1', 'a2', 'b2', 'a3', 'a4', 'a5']);
  });

  test('a client without a place comes before one that has some', async () => {
    const { queue: q } = queue(2, 100);
    const order: string[] = [];
    const first = enter(q, 'a', 'a0', order);
    enter(q, 'a', 'a1', order);
    enter(q, 'a', 'a2', order);
    enter(q, 'b', 'b1', order);
    first.leave();
    await settled();
    expect(order).toEqual(['a0', 'a1', 'b1']);
  });

  test('refuses at once what it cannot hold', () => {
    const { queue: q } = queue(1, 1);
    q.enter('a', never);
    q.enter('a', never);
    expect(() => q.enter('b', never)).toThrow(expect.objectContaining({ code: 'QUEUE_FULL' }));
    expect(q.counts).toMatchObject({ active: 1, queued: 1, rejected: 1 });
  });

  test('a queue of zero still runs what fits', () => {
    const { queue: q } = queue(1, 0);
    const place = q.enter('a', never);
    expect(() => q.enter('b', never)).toThrow(expect.objectContaining({ code: 'QUEUE_FULL' }));
    place.leave();
    expect(() => q.enter('b', never)).not.toThrow();
  });

  test('waiting ends at the timeout, and the place behind moves up', async () => {
    const { queue: q, timers } = queue(1, 10);
    const order: string[] = [];
    const first = enter(q, 'a', '1', order);
    const second = enter(q, 'a', '2', order);
    timers.pass(600);
    const third = enter(q, 'a', '3', order);
    timers.pass(500);
    await expect(second.granted).rejects.toMatchObject({ code: 'QUEUE_TIMEOUT' });
    expect(q.counts).toMatchObject({ queued: 1, timedOut: 1 });
    second.leave();
    first.leave();
    await third.granted;
    expect(timers.size).toBe(0);
    expect(q.counts).toMatchObject({ active: 1, queued: 0, timedOut: 1, cancelled: 0 });
  });

  test('an abort while waiting gives the place up and keeps the count', async () => {
    const { queue: q, timers } = queue(1, 1);
    const abort = new AbortController();
    const first = q.enter('a', never);
    const second = q.enter('b', abort.signal);
    abort.abort(new RequestError('CANCELLED', 'gone'));
    await expect(second.granted).rejects.toMatchObject({ code: 'CANCELLED' });
    second.leave();
    expect(q.counts).toMatchObject({ queued: 0, cancelled: 1 });
    expect(timers.size).toBe(0);
    expect(() => q.enter('c', never).leave()).not.toThrow();
    first.leave();
    expect(() => q.enter('a', abort.signal)).toThrow(expect.objectContaining({ code: 'CANCELLED' }));
  });

  test('a request whose client went away while it ran is cancelled, not completed', () => {
    const { queue: q } = queue(1, 1);
    const abort = new AbortController();
    const place = q.enter('a', abort.signal);
    abort.abort();
    expect(q.counts).toMatchObject({ active: 1, cancelled: 0 });
    place.leave();
    expect(q.counts).toMatchObject({ active: 0, admitted: 1, completed: 0, cancelled: 1 });
  });

  test('leaving twice frees one place', () => {
    const { queue: q } = queue(1, 10);
    const first = q.enter('a', never);
    q.enter('a', never);
    q.enter('a', never);
    first.leave();
    first.leave();
    expect(q.counts).toMatchObject({ active: 1, queued: 1 });
  });

  test('a stop sends away what waits and what comes, and tells when the rest has run', async () => {
    const { queue: q } = queue(1, 10);
    const first = q.enter('a', never);
    const second = q.enter('a', never);
    q.stop(new RequestError('SERVER_STOPPING', 'stopping'));
    await expect(second.granted).rejects.toMatchObject({ code: 'SERVER_STOPPING' });
    expect(() => q.enter('a', never)).toThrow(expect.objectContaining({ code: 'SERVER_STOPPING' }));
    let idle = false;
    const done = q.idle().then(() => {
      idle = true;
    });
    await settled();
    expect(idle).toBe(false);
    first.leave();
    await done;
    expect(q.counts).toMatchObject({ active: 0, queued: 0, rejected: 2 });
  });
});

describe('a request that is still being checked', () => {
  const signal = new AbortController().signal;

  test('takes no place until it is ready, and goes on at once when one is free', async () => {
    const queue = new AdmissionQueue({ capacity: 1, maxQueue: 2, queueTimeoutMs: 1000 });
    const slow = queue.enter('slow', signal, false);
    const quick = queue.enter('quick', signal);
    await quick.granted;
    expect(queue.counts).toMatchObject({ active: 1, queued: 0, admitted: 1 });
    slow.ready();
    expect(queue.counts).toMatchObject({ active: 1, queued: 1 });
    quick.leave();
    await slow.granted;
    slow.leave();
    expect(queue.counts).toMatchObject({ active: 0, queued: 0, admitted: 2, completed: 2 });
  });

  test('counts against the limit of the queue', () => {
    const queue = new AdmissionQueue({ capacity: 1, maxQueue: 1, queueTimeoutMs: 1000 });
    const places = [queue.enter('a', signal, false), queue.enter('b', signal, false)];
    expect(() => queue.enter('c', signal)).toThrow(expect.objectContaining({ code: 'QUEUE_FULL' }));
    places[0].leave();
    places[0].leave();
    places[0].ready();
    expect(() => queue.enter('c', signal).leave()).not.toThrow();
    expect(queue.counts).toMatchObject({ active: 0, queued: 0, admitted: 1, completed: 1, rejected: 1 });
  });

  test('is sent away when it is ready after the server has begun to stop, or its client has gone', async () => {
    const queue = new AdmissionQueue({ capacity: 1, maxQueue: 1, queueTimeoutMs: 1000 });
    const gone = new AbortController();
    const [left, late] = [queue.enter('a', gone.signal, false), queue.enter('b', signal, false)];
    gone.abort(new Error('gone'));
    left.ready();
    await expect(left.granted).rejects.toThrow('gone');
    left.leave();
    queue.stop(new RequestError('SERVER_STOPPING', 'stopping'));
    late.ready();
    await expect(late.granted).rejects.toThrow('stopping');
    late.leave();
    expect(queue.counts).toMatchObject({ active: 0, queued: 0, admitted: 0, cancelled: 1, rejected: 1 });
  });
});
