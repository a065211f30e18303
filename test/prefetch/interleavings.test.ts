/** No order of guesses, demands, arrivals, failures and cancellations breaks what the expert store promises. */

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { StorageError } from '../../src/common/errors.ts';
import { Cancelled } from '../../src/experts/store.ts';
import { type FakeStore, fakeStore, RECORD_BYTES } from '../../src/experts/test-support.ts';

/** Few, so that what is guessed, broken and asked for is often the same. */
const LAYERS = 2;
const EXPERTS = 4;

const experts = fc.uniqueArray(fc.nat(EXPERTS - 1), { minLength: 1, maxLength: EXPERTS });
const number = fc.nat(1000);
const step = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('lease' as const), layer: fc.nat(LAYERS - 1), experts }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('serve' as const), waits: fc.boolean(), released: fc.nat(5) }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('guess' as const), layer: fc.nat(LAYERS - 1), experts }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('whole layer' as const), layer: fc.nat(LAYERS - 1) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('arrive' as const), number }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('start' as const), number }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('break' as const), number }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('warm' as const), layer: fc.nat(LAYERS - 1), number }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('mend' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('cancel' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('settle' as const) }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

/** A store, the lease that is under way, and what of it has been handed out and not given back. */
class Play {
  readonly fake: FakeStore;
  /** Reads ahead that failed after they were asked for, and were read anew. */
  anew = 0;
  #layer = -1;
  #wanted: number[] = [];
  #served = new Set<number>();
  #cancelled = false;
  readonly #inUse = new Map<number, number>();
  readonly #everBroken = new Set<number>();

  constructor(slots: number) {
    this.fake = fakeStore(LAYERS, EXPERTS, slots);
    const { pool } = this.fake;
    const submit = pool.submit.bind(pool);
    pool.submit = (record, ...others) => {
      expect([...pool.requests.values()].filter(request => request.record === record)).toEqual([]);
      return submit(record, ...others);
    };
  }

  play(next: Step): void {
    const { store, pool, record } = this.fake;
    const useful = store.counters.aheadHits;
    const pick = (n: number) => pool.unfinished[n % pool.unfinished.length];
    if (next.do === 'lease')
      this.#lease(
        next.layer,
        next.experts.toSorted((a, b) => a - b),
      );
    else if (next.do === 'serve') this.#serve(next.waits, next.released);
    else if (next.do === 'guess' && next.layer !== this.#layer && store.wantsGuesses())
      store.guess(next.layer, Int32Array.from(next.experts), next.experts.length);
    else if (next.do === 'whole layer' && next.layer !== this.#layer) store.readAhead(next.layer);
    else if (next.do === 'warm') store.warm(next.layer, next.number % EXPERTS);
    else if (next.do === 'arrive' && pool.unfinished.length > 0) pool.complete(pick(next.number));
    else if (next.do === 'start' && pool.unfinished.length > 0) pool.start(pick(next.number));
    else if (next.do === 'break') {
      const broken = record(next.number % LAYERS, next.number % EXPERTS);
      pool.broken.add(broken);
      this.#everBroken.add(broken);
    } else if (next.do === 'mend') pool.broken.clear();
    else if (next.do === 'cancel') this.fake.setCancelled((this.#cancelled = !this.#cancelled));
    else if (next.do === 'settle' && this.#layer < 0) this.#settle();
    if (store.counters.aheadHits < useful) this.anew++;
    this.#check();
  }

  finish(): void {
    this.#end();
    this.#cancelled = false;
    this.fake.setCancelled(false);
    this.#settle();
    expect(this.fake.pool.requests.size).toBe(0);
    expect(this.fake.pool.freeTickets).toBe(1024);
  }

  #lease(layer: number, wanted: number[]): void {
    this.#end();
    this.#layer = layer;
    this.#wanted = wanted;
    this.#served = new Set();
    this.fake.store.begin(layer, Int32Array.from(wanted), new Int32Array(wanted.length).fill(1), wanted.length);
  }

  #serve(waits: boolean, released: number): void {
    const { store } = this.fake;
    for (const position of [...this.#inUse.keys()].slice(0, released)) {
      this.#inUse.delete(position);
      store.release(position);
    }
    if (this.#layer < 0 || this.#inUse.size > 0) return;
    try {
      const ready = store.next(waits);
      for (const position of store.ready.subarray(0, ready)) {
        expect(this.#served.has(position)).toBe(false);
        this.#served.add(position);
        this.#inUse.set(position, store.addressOf(position, 0));
      }
      if (ready === 0 && waits) expect(this.#served.size).toBe(this.#wanted.length);
    } catch (error) {
      // a read that fails is of an expert that is broken, and asked for
      if (error instanceof StorageError) {
        expect(this.#wanted.map(expert => `record ${this.fake.record(this.#layer, expert)}`)).toContain(error.message);
        expect(this.#everBroken.has(Number(error.message.split(' ')[1]))).toBe(true);
      } else expect(error instanceof Cancelled && this.#cancelled).toBe(true);
      this.#end();
    }
  }

  #end(): void {
    if (this.#layer >= 0) this.fake.store.end();
    this.#layer = -1;
    this.#inUse.clear();
  }

  #settle(): void {
    const { store } = this.fake;
    store.settle();
    const { prefetched, aheadHits, wasted, usefulBytes, wastedBytes } = store.counters;
    expect(aheadHits + wasted).toBe(prefetched);
    expect([usefulBytes, wastedBytes]).toEqual([aheadHits * RECORD_BYTES, wasted * RECORD_BYTES]);
  }

  #check(): void {
    const { store, pool, record } = this.fake;
    for (const [position, address] of this.#inUse) {
      expect(store.isResident(this.#layer, this.#wanted[position])).toBe(true);
      expect(store.addressOf(position, 0)).toBe(address);
    }
    let residents = 0;
    for (let layer = 0; layer < LAYERS; layer++) {
      for (let expert = 0; expert < EXPERTS; expert++) {
        if (!store.isResident(layer, expert)) continue;
        residents++;
        expect([...pool.requests.values()].some(request => request.record === record(layer, expert))).toBe(false);
      }
    }
    expect(residents + pool.requests.size).toBeLessThanOrEqual(store.slotCount);
    const { requests, hits, misses, prefetched, aheadHits, wasted, aheadLate, guessable, guessed } = store.counters;
    expect(hits + misses).toBeLessThanOrEqual(requests);
    expect(aheadHits + wasted).toBeLessThanOrEqual(prefetched);
    expect(aheadLate).toBeLessThanOrEqual(aheadHits + wasted);
    expect(guessed).toBeLessThanOrEqual(guessable);
  }
}

test('guesses, demands, arrivals, failures and cancellations in any order', () => {
  let useful = 0;
  let anew = 0;
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: LAYERS * EXPERTS - 1 }),
      fc.array(step, { maxLength: 80, size: 'max' }),
      (slots, steps) => {
        const play = new Play(slots);
        // a read is timed first, so that guesses are welcome
        play.fake.lease(0, [0]);
        for (const each of steps) play.play(each);
        play.finish();
        useful += play.fake.store.counters.aheadHits;
        anew += play.anew;
      },
    ),
    { numRuns: 600 },
  );
  // all of it was tried
  expect(useful).toBeGreaterThan(0);
  expect(anew).toBeGreaterThan(0);
});
