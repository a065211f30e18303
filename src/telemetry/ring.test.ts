import { expect, it } from 'vitest';
import { decodeEvent } from './events.ts';
import { WORK_COUNT, WORK_NAMES } from './fields.ts';
import { RingReader, RingWriter, ringBytes } from './ring.ts';

const RECORDS = 8;

function ring() {
  const buffer = new SharedArrayBuffer(ringBytes(RECORDS));
  const writer = new RingWriter(buffer, 0, RECORDS);
  const values = new Float64Array(WORK_COUNT);
  let count = 0;
  return {
    buffer,
    reader: () => new RingReader(buffer, 0, RECORDS),
    write: (times: number) => {
      for (let i = 0; i < times; i++) {
        values.fill(count);
        writer.write('layer', count++, 3, 0.5, values, 0, WORK_COUNT);
      }
    },
  };
}

function take(reader: RingReader): number[] {
  const steps: number[] = [];
  for (let record = reader.read(); record; record = reader.read()) steps.push(record[1]);
  return steps;
}

it('hands on what is written, each once, to several readers', () => {
  const { reader, write } = ring();
  const [one, two] = [reader(), reader()];
  write(3);
  expect(take(one)).toEqual([0, 1, 2]);
  write(2);
  expect(take(one)).toEqual([3, 4]);
  expect(take(two)).toEqual([0, 1, 2, 3, 4]);
  expect(take(reader())).toEqual([]);
  expect([one.lost, two.lost]).toEqual([0, 0]);
});

it('loses the oldest of a reader that is too slow, and says how many', () => {
  const { reader, write } = ring();
  const slow = reader();
  write(RECORDS);
  expect(take(slow)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  write(RECORDS + 5);
  expect(take(slow)).toEqual([13, 14, 15, 16, 17, 18, 19, 20]);
  expect(slow.lost).toBe(5);
});

it('does not give a record away that is written to while it is read', () => {
  const { buffer, reader, write } = ring();
  const late = reader();
  write(RECORDS);
  // the writer has begun with the place of the oldest
  Atomics.add(new Int32Array(buffer), 0, 1);
  expect(take(late)).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(late.lost).toBe(1);
});

it('goes on when its counters wrap', () => {
  const buffer = new SharedArrayBuffer(ringBytes(RECORDS));
  const control = new Int32Array(buffer, 0, 32);
  // as after 2^31 - 3 records; both counters stand at multiples of the ring but for three
  control[0] = control[16] = 2 ** 31 - RECORDS;
  const reader = new RingReader(buffer, 0, RECORDS);
  const writer = new RingWriter(buffer, 0, RECORDS);
  for (let i = 0; i < RECORDS + 3; i++) writer.write('repin', i, -1, 0, Float64Array.of(i), 0, 1);
  expect(take(reader)).toEqual([3, 4, 5, 6, 7, 8, 9, 10]);
});

it('names fields', () => {
  const { reader, write } = ring();
  const all = reader();
  write(2);
  all.read();
  const event = decodeEvent(all.read()!);
  expect(event).toMatchObject({ type: 'layer', step: 1, layer: 3, ms: 0.5 });
  expect(event.fields).toEqual(Object.fromEntries(WORK_NAMES.map(name => [name, 1])));
});
