import { describe, expect, test } from 'vitest';
import { driveOf, mixed } from './mirror-route.ts';

const RECORDS = 20_000;
const ALL = 0b11111;
const share = (records: number, is: (record: number) => boolean): number => {
  let count = 0;
  for (let record = 0; record < records; record++) if (is(record)) count++;
  return count / records;
};

describe('the share of a drive is that of its weight', () => {
  test.each([
    { weights: [1] },
    { weights: [1, 1] },
    { weights: [7, 3.5] },
    { weights: [6.4e9, 3.1e9, 0.4e9] },
    { weights: [1, 2, 3, 4, 5] },
    { weights: [0, 1] },
    { weights: [1, 0, 1] },
  ])('$weights', ({ weights }) => {
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    weights.forEach((weight, drive) => {
      const found = share(RECORDS, record => driveOf(record, weights, ALL) === drive);
      // five standard deviations of a fair draw
      const p = weight / total;
      expect(Math.abs(found - p)).toBeLessThanOrEqual(5 * Math.sqrt((p * (1 - p)) / RECORDS));
    });
  });
});

test('neighbours, the experts of a layer and one expert of every layer are divided alike', () => {
  for (const experts of [16, 64, 128, 256]) {
    const layers = 60;
    for (const expert of [0, 1, experts - 1]) {
      const own = share(layers, layer => driveOf(layer * experts + expert, [1, 1], ALL) === 0);
      expect(Math.abs(own - 0.5)).toBeLessThan(0.3);
    }
    const inLayer = share(experts, expert => driveOf(7 * experts + expert, [1, 1], ALL) === 0);
    expect(Math.abs(inLayer - 0.5)).toBeLessThan(0.4);
  }
});

test('nothing but record, weights and files decides, and weights only by their proportion', () => {
  for (let record = 0; record < 1000; record++) {
    const drive = driveOf(record, [4, 2, 1], ALL);
    expect(driveOf(record, [4, 2, 1], ALL)).toBe(drive);
    expect(driveOf(record, [4e9, 2e9, 1e9], ALL)).toBe(drive);
  }
  expect([0, 1, 2, 3].map(mixed)).toEqual([0, 1364076727, 821347078, 2247144487]);
});

test('a record goes to a drive that has it; the others take over by their weights', () => {
  const weights = [2, 1, 1];
  for (let record = 0; record < 2000; record++) {
    expect([0, 2]).toContain(driveOf(record, weights, 0b101));
    expect(driveOf(record, weights, 0b001)).toBe(0);
    // without its bit, too: the model's own drive has everything
    expect([0, 1]).toContain(driveOf(record, weights, 0b010));
  }
  const second = share(RECORDS, record => driveOf(record, weights, 0b101) === 2);
  expect(second).toBeCloseTo(1 / 3, 1);
});

test('what no drive with a weight has comes from the model', () => {
  for (let record = 0; record < 100; record++) {
    expect(driveOf(record, [0, 1, 1], 0b001)).toBe(0);
    expect(driveOf(record, [0, 1], 0b011)).toBe(1);
  }
});

test('a small change of a weight moves few records', () => {
  const moved = share(RECORDS, record => driveOf(record, [1, 1], ALL) !== driveOf(record, [1.02, 1], ALL));
  expect(moved).toBeLessThan(0.01);
  expect(moved).toBeGreaterThan(0);
});

/** Readers take reads in order; a drive gives its bandwidth to what it reads at that time, one read after the other. */
function simulatedSeconds(
  speeds: readonly number[],
  drives: readonly number[],
  bytes: number,
  readers: number,
): number {
  const readerFree = new Array<number>(readers).fill(0);
  const driveFree = new Array<number>(speeds.length).fill(0);
  for (const drive of drives) {
    const reader = readerFree.indexOf(Math.min(...readerFree));
    const end = Math.max(readerFree[reader], driveFree[drive]) + bytes / speeds[drive];
    readerFree[reader] = end;
    driveFree[drive] = end;
  }
  return Math.max(...readerFree);
}

test.each([{ speeds: [2e9, 2e9] }, { speeds: [6e9, 3e9] }, { speeds: [3e9, 1e9, 2e9] }])(
  'in simulated time, drives of $speeds give nearly the sum of their speeds',
  ({ speeds }) => {
    const bytes = 19e6;
    const reads = Array.from({ length: 3000 }, (_, record) => record);
    const sum = speeds.reduce((all, speed) => all + speed, 0);
    const routed = reads.map(record => driveOf(record, speeds, ALL));
    const rate = (reads.length * bytes) / simulatedSeconds(speeds, routed, bytes, 32);
    const alone =
      (reads.length * bytes) /
      simulatedSeconds(
        speeds,
        reads.map(() => 0),
        bytes,
        32,
      );
    expect(alone).toBeCloseTo(speeds[0], -6);
    expect(rate / sum).toBeGreaterThan(0.9);
    expect(rate / sum).toBeLessThanOrEqual(1);
  },
);
