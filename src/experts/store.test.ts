import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { Cancelled } from './store.ts';
import { begin, fakeStore, RECORD_BYTES } from './test-support.ts';

const LAYERS = 3;
const EXPERTS = 6;

/** Distinct experts of a layer, as routers give them: ascending. */
const wanted = (most: number) =>
  fc.uniqueArray(fc.nat(EXPERTS - 1), { minLength: 1, maxLength: most }).map(ids => ids.sort((a, b) => a - b));

/** A request: leases of layers with some experts each, and a number that decides in which order reads end. */
const requests = fc.array(
  fc.record({ layer: fc.nat(LAYERS - 1), experts: wanted(EXPERTS), ahead: fc.boolean(), order: fc.nat(1000) }),
  { minLength: 1, maxLength: 25 },
);

describe('leases', () => {
  test('serve every wanted expert exactly once, from memory, whatever the slots and the order of reads', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 20 }), requests, (slots, sequence) => {
        const { store, pool, lease } = fakeStore(LAYERS, EXPERTS, slots);
        let demanded = 0;
        for (const { layer, experts, ahead, order } of sequence) {
          pool.pick = tickets => tickets[order % tickets.length];
          const served: number[] = [];
          lease(layer, experts, (expert, ready) => {
            served.push(expert);
            expect(store.isResident(layer, expert)).toBe(true);
            if (ahead && served.length === 1) store.readAhead((layer + 1) % LAYERS);
            // those handed out together stay until each is released
            for (const other of ready) {
              if (!served.includes(other) || other === expert) expect(store.isResident(layer, other)).toBe(true);
            }
          });
          expect(served.sort((a, b) => a - b)).toEqual(experts);
          demanded += experts.length;
          expect(store.counters.requests).toBe(demanded);
          expect(store.counters.hits + store.counters.misses).toBe(demanded);
        }
        store.settle();
        expect(pool.requests.size).toBe(0);
        expect(pool.freeTickets).toBe(1024);
      }),
    );
  });

  test('evict as a plain least-recently-used list does', () => {
    const small = fc.array(fc.record({ layer: fc.nat(LAYERS - 1), experts: wanted(3) }), { maxLength: 40 });
    fc.assert(
      fc.property(fc.integer({ min: 3 * LAYERS, max: 12 }), small, (slots, sequence) => {
        const { store, pool, lease, record } = fakeStore(LAYERS, EXPERTS, slots);
        const memory: number[] = []; // records, least recently used first
        const expected: number[] = [];
        for (const { layer, experts } of sequence) {
          const records = experts.map(expert => record(layer, expert));
          const hits = records.filter(each => memory.includes(each));
          const misses = records.filter(each => !memory.includes(each));
          for (const each of hits) memory.push(...memory.splice(memory.indexOf(each), 1));
          for (const each of misses) {
            if (memory.length === slots)
              memory.splice(
                memory.findIndex(old => !records.includes(old)),
                1,
              );
            memory.push(each);
          }
          expected.push(...misses);
          lease(layer, experts);
          for (let l = 0; l < LAYERS; l++) {
            for (let e = 0; e < EXPERTS; e++) expect(store.isResident(l, e)).toBe(memory.includes(record(l, e)));
          }
        }
        expect(pool.submitted).toEqual(expected);
        expect(store.counters.misses).toBe(expected.length);
        expect(store.counters.bytesRead).toBe(expected.length * RECORD_BYTES);
        expect(store.counters.wasted).toBe(0);
      }),
    );
  });

  test('when every layer wants more than its share, those in memory stay instead of chasing each other out', () => {
    const { store, lease } = fakeStore(2, EXPERTS, 9);
    const all = Array.from({ length: EXPERTS }, (_, expert) => expert);
    const rounds = 50;
    for (let round = 0; round < rounds; round++) for (const layer of [0, 1]) lease(layer, all);
    const { requests, hits } = store.counters;
    expect(requests).toBe(rounds * 2 * EXPERTS);
    // no more than the slots can be found in a round; by age alone it would be none
    expect(hits).toBeGreaterThan(rounds * 5);
    expect(hits).toBeLessThanOrEqual(rounds * 9);
  });

  test('what is in memory follows a text that changes, also in a flood', () => {
    const { store, lease } = fakeStore(1, EXPERTS, 2);
    for (let round = 0; round < 20; round++) lease(0, [0, 1, 2]);
    for (let round = 0; round < 40; round++) lease(0, [3, 4, 5]);
    expect([3, 4, 5].filter(expert => store.isResident(0, expert))).toHaveLength(2);
    expect(store.counters.hits).toBeGreaterThan(40);
  });

  test('more experts than slots are served in waves, each read once', () => {
    const { store, pool, lease, record } = fakeStore(1, EXPERTS, 2);
    const waves: number[][] = [];
    lease(0, [0, 1, 2, 3, 4, 5], (expert, ready) => {
      if (ready[0] === expert) waves.push([...ready]);
    });
    expect(waves.every(wave => wave.length <= 2)).toBe(true);
    expect(pool.submitted).toEqual([0, 1, 2, 3, 4, 5].map(expert => record(0, expert)));
    expect(store.counters).toMatchObject({ requests: 6, hits: 0, misses: 6 });
  });

  test('hand out what is in memory first, without waiting', () => {
    const { pool, lease } = fakeStore(1, EXPERTS, 4);
    lease(0, [1, 3]);
    const waits = pool.waits;
    const first: number[] = [];
    lease(0, [0, 1, 3], (expert, ready) => {
      if (first.length === 0) {
        first.push(...ready);
        expect(pool.waits).toBe(waits);
        expect(pool.unfinished).toHaveLength(1);
      }
      void expert;
    });
    expect(first).toEqual([1, 3]);
  });
});

describe('addresses', () => {
  test('are those of the slot that the record was read into', () => {
    const { store, pool } = fakeStore(1, EXPERTS, 3);
    begin(store, 0, [4, 5]);
    const slots = [...pool.requests.values()].map(request => request.slot);
    pool.pick = tickets => tickets.at(-1)!;
    expect(store.next()).toBe(1);
    expect(store.ready[0]).toBe(1);
    expect(store.arenaOf(1)).toBe(slots[1] % 2);
    expect(store.addressOf(1, 2)).toBe(slots[1] * 4096 + 200);
    expect(store.shape(1, 0)).toMatchObject({ layout: 'f32', rows: 1, columns: 1 });
    store.end();
    store.settle();
  });
});

describe('reading ahead', () => {
  test('takes only slots that nobody uses, and never those of the coming layer', () => {
    const { store, pool, lease } = fakeStore(2, EXPERTS, 5);
    lease(1, [0, 1]);
    begin(store, 0, [2, 3]);
    store.readAhead(1);
    // two slots hold experts 0 and 1 of the coming layer, two are in use: one is left
    expect(store.counters.prefetched).toBe(1);
    expect(store.isResident(1, 0) && store.isResident(1, 1)).toBe(true);
    expect([...pool.requests.values()].filter(request => request.ahead)).toHaveLength(1);
    store.end();
    store.settle();
  });

  test('that comes true is a hit, and its read is put before others', () => {
    const { store, pool, lease, record } = fakeStore(2, EXPERTS, 6);
    lease(0, [0], () => store.readAhead(1));
    expect(store.counters.prefetched).toBe(5);
    const before = { ...store.counters };
    lease(1, [2, 3]);
    expect(pool.submitted.filter(each => each === record(1, 2))).toHaveLength(1);
    expect(pool.promoted).toHaveLength(2);
    expect(store.counters).toMatchObject({ hits: before.hits + 2, misses: before.misses, wasted: 0 });
  });

  test('that does not is called off while it is queued, and wasted, counted once, when it was begun', () => {
    const { store, pool, lease } = fakeStore(2, EXPERTS, 6);
    lease(0, [0], () => store.readAhead(1));
    const [first, second] = pool.unfinished;
    pool.complete(first);
    pool.start(second);
    store.settle();
    expect(store.counters).toMatchObject({ prefetched: 2, wasted: 2, misses: 1 });
    expect(store.counters.bytesRead).toBe(3 * RECORD_BYTES);
    expect([0, 1, 2, 3, 4].map(expert => store.isResident(1, expert))).toEqual([true, true, false, false, false]);
    // an expert that was read ahead in vain is an ordinary one from then on
    lease(1, [0, 1]);
    store.settle();
    expect(store.counters).toMatchObject({ prefetched: 2, wasted: 2, misses: 1 });
  });

  test('gives its slots to demands, read or not', () => {
    const { store, pool, lease } = fakeStore(3, EXPERTS, 6);
    lease(0, [0], () => store.readAhead(1));
    pool.complete(pool.unfinished[0]);
    // five slots went to layer 1; layer 2 needs all six at once
    begin(store, 2, [0, 1, 2, 3, 4, 5]);
    expect(pool.unfinished).toHaveLength(6);
    expect([...pool.requests.values()].every(request => !request.ahead)).toBe(true);
    // four were not begun yet
    expect(store.counters).toMatchObject({ prefetched: 1, wasted: 1 });
    store.end();
    store.settle();
  });

  test('stops while tickets are few, so that demands find one', () => {
    const { store, pool, lease } = fakeStore(2, EXPERTS, 12);
    pool.freeTickets = 66;
    lease(0, [0], () => store.readAhead(1));
    expect(store.counters.prefetched).toBe(2);
    store.settle();
  });

  test('and failing harms nobody who does not need it', () => {
    const { store, pool, lease, record } = fakeStore(2, EXPERTS, 6);
    pool.broken.add(record(1, 0));
    lease(0, [0], () => store.readAhead(1));
    for (const ticket of pool.unfinished) pool.complete(ticket);
    lease(1, [1, 2]);
    store.settle();
    expect(store.isResident(1, 0)).toBe(false);
    expect(() => lease(1, [0])).toThrow(/record/);
  });
});

describe('failures', () => {
  test('a failed read throws, leaves nothing behind, and is tried anew', () => {
    const { store, pool, lease, record } = fakeStore(1, EXPERTS, 3);
    pool.broken.add(record(0, 2));
    expect(() => lease(0, [1, 2, 3])).toThrow(/READ_FAILED|record/);
    store.settle();
    expect(pool.requests.size).toBe(0);
    expect(store.isResident(0, 2)).toBe(false);
    pool.broken.clear();
    const served: number[] = [];
    lease(0, [1, 2, 3], expert => served.push(expert));
    expect(served.sort()).toEqual([1, 2, 3]);
  });

  test('a cancelled wait leaves reads in flight alone, and they are used when they arrive', () => {
    const { store, pool, lease, setCancelled } = fakeStore(1, EXPERTS, 2);
    setCancelled(true);
    pool.pick = tickets => {
      for (const ticket of tickets) pool.start(ticket);
      throw new Cancelled();
    };
    expect(() => lease(0, [0, 1])).toThrow(Cancelled);
    store.settle();
    expect(pool.unfinished).toHaveLength(2);
    setCancelled(false);
    pool.pick = tickets => tickets[0];
    // both slots are still being filled: other experts wait for one of them
    const served: number[] = [];
    lease(0, [4, 5], expert => served.push(expert));
    expect(served).toEqual([4, 5]);
    store.settle();
    expect(pool.requests.size).toBe(0);
  });

  test('waiting looks at the cancellation flag', () => {
    const { store, pool, lease, setCancelled } = fakeStore(1, EXPERTS, 2);
    pool.pick = tickets => {
      setCancelled(true);
      return tickets[0];
    };
    expect(() => lease(0, [0])).toThrow(Cancelled);
    store.settle();
    expect(store.counters.waitUs).toBeGreaterThanOrEqual(0);
  });
});
