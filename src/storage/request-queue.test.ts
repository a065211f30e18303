import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Failure, MAX_TEXT_BYTES, MAX_TICKETS, type Priority, RequestQueue } from './request-queue.ts';

const FAILURE: Failure = { code: 'SHORT_READ', file: 3, offset: 2 ** 40, expected: 100, got: 7, text: 'ÿ' };

function pair() {
  const owner = new RequestQueue();
  return { owner, reader: new RequestQueue(owner.buffer) };
}

/** Records in the order in which a reader takes them. */
function drain(queue: RequestQueue): number[] {
  const order: number[] = [];
  for (let ticket = queue.take(0); ticket >= 0; ticket = queue.take(0)) {
    order.push(queue.record(ticket));
    queue.complete(ticket, 0, 0);
  }
  return order;
}

describe('order', () => {
  test('demand before ahead, each in order of submission', () => {
    const { owner, reader } = pair();
    const kinds: Priority[] = ['ahead', 'demand', 'ahead', 'demand'];
    kinds.forEach((kind, record) => {
      owner.submit(record, 0, 0, kind);
    });
    expect(drain(reader)).toEqual([1, 3, 0, 2]);
  });

  test('a promoted request goes before all speculative ones', () => {
    const { owner, reader } = pair();
    owner.submit(0, 0, 0, 'ahead');
    owner.promote(owner.submit(1, 0, 0, 'ahead'));
    expect(drain(reader)).toEqual([1, 0]);
  });

  test('reused tickets keep the order of submission', () => {
    const { owner, reader } = pair();
    const first = owner.submit(0, 0, 0, 'demand');
    owner.submit(1, 0, 0, 'demand');
    reader.complete(reader.take(0), 0, 0);
    owner.release(first);
    owner.submit(2, 0, 0, 'demand');
    expect(drain(reader)).toEqual([1, 2]);
  });

  test('any mixture of submit, promote, cancel and take matches a plain list', () => {
    const action = fc.record({
      kind: fc.constantFrom('demand', 'ahead', 'promote', 'cancel', 'take'),
      pick: fc.nat(50),
    });
    fc.assert(
      fc.property(fc.array(action, { maxLength: 120 }), actions => {
        const { owner, reader } = pair();
        let model: { ticket: number; record: number; ahead: boolean }[] = [];
        let record = 0;
        for (const { kind, pick } of actions) {
          const chosen = model[pick % Math.max(model.length, 1)];
          if (kind === 'demand' || kind === 'ahead') {
            model.push({ ticket: owner.submit(record, 0, 0, kind), record: record++, ahead: kind === 'ahead' });
          } else if (kind === 'take') {
            const next = model.find(each => !each.ahead) ?? model[0];
            const ticket = reader.take(0);
            expect(ticket).toBe(next?.ticket ?? -1);
            if (!next) continue;
            expect(reader.record(ticket)).toBe(next.record);
            reader.complete(ticket, 0, 0);
            owner.release(ticket);
            model = model.filter(each => each !== next);
          } else if (chosen && kind === 'promote') {
            owner.promote(chosen.ticket);
            chosen.ahead = false;
          } else if (chosen) {
            expect(owner.cancel(chosen.ticket)).toBe(true);
            model = model.filter(each => each !== chosen);
          }
          expect(owner.freeTickets).toBe(MAX_TICKETS - model.length);
        }
      }),
    );
  });
});

describe('tickets', () => {
  test('go through their states and carry arguments and results', () => {
    const { owner, reader } = pair();
    const ticket = owner.submit(12, 1, 3 * 2 ** 30, 'demand');
    expect(owner.state(ticket)).toBe('queued');
    expect(reader.take(5)).toBe(ticket);
    expect(owner.state(ticket)).toBe('running');
    expect([reader.record(ticket), reader.arena(ticket), reader.destination(ticket)]).toEqual([12, 1, 3 * 2 ** 30]);
    const before = owner.doneCount();
    reader.complete(ticket, 2 ** 33, 1.5);
    expect(owner.state(ticket)).toBe('done');
    expect(owner.doneCount()).not.toBe(before);
    expect([owner.readBytes(ticket), owner.serviceUs(ticket)]).toEqual([2 ** 33, 1.5]);
    owner.release(ticket);
    expect(owner.state(ticket)).toBe('free');
  });

  test('a failure keeps its facts', () => {
    const { owner, reader } = pair();
    owner.submit(0, 0, 0, 'ahead');
    const ticket = reader.take(0);
    reader.fail(ticket, FAILURE);
    expect(owner.state(ticket)).toBe('failed');
    expect(owner.failure(ticket)).toEqual(FAILURE);
  });

  test('a long text is cut and does not touch the next ticket', () => {
    const { owner, reader } = pair();
    owner.submit(0, 0, 0, 'demand');
    owner.submit(1, 0, 0, 'demand');
    const [first, second] = [reader.take(0), reader.take(0)];
    reader.fail(second, FAILURE);
    reader.fail(first, { ...FAILURE, text: 'x'.repeat(1000) });
    expect(owner.failure(first).text).toBe('x'.repeat(MAX_TEXT_BYTES));
    expect(owner.failure(second).text).toBe('ÿ');
  });

  test('one that runs cannot be cancelled', () => {
    const { owner, reader } = pair();
    const ticket = owner.submit(0, 0, 0, 'ahead');
    reader.take(0);
    expect(owner.cancel(ticket)).toBe(false);
    reader.complete(ticket, 0, 0);
    expect(owner.cancel(ticket)).toBe(false);
    expect(owner.state(ticket)).toBe('done');
  });

  test('one too many is refused', () => {
    const { owner } = pair();
    for (let i = 0; i < MAX_TICKETS; i++) owner.submit(i, 0, 0, 'ahead');
    expect(() => owner.submit(0, 0, 0, 'demand')).toThrow(expect.objectContaining({ code: 'QUEUE_FULL' }));
  });
});

describe('dead readers', () => {
  test('only what the dead one was running fails', () => {
    const { owner, reader } = pair();
    for (let i = 0; i < 3; i++) owner.submit(i, 0, 0, 'demand');
    const [mine, other] = [reader.take(7), reader.take(8)];
    owner.abandonReader(7, 'gone');
    expect([mine, other, 2].map(ticket => owner.state(ticket))).toEqual(['failed', 'running', 'queued']);
    expect(owner.failure(mine)).toMatchObject({ code: 'READER_DIED', text: 'gone' });
    owner.abandonQueued('nobody left');
    expect([other, 2].map(ticket => owner.state(ticket))).toEqual(['running', 'failed']);
  });

  test('a ticket used again is not taken for one of its former reader', () => {
    const { owner, reader } = pair();
    owner.submit(0, 0, 0, 'demand');
    const ticket = reader.take(7);
    reader.complete(ticket, 0, 0);
    owner.release(ticket);
    owner.submit(1, 0, 0, 'demand');
    expect(reader.take(8)).toBe(ticket);
    owner.abandonReader(7, 'gone');
    expect(owner.state(ticket)).toBe('running');
  });
});
