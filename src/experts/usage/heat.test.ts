import { expect, test } from 'vitest';
import { HALF_LIFE_TOKENS, Usage } from './heat.ts';

const SHAPE = { layers: 3, experts: 4, topK: 2 };

/** A pass of `rows` tokens through layers 1 and 2, which all choose experts 0 and 1 of layer 1 and those given of layer 2. */
function pass(usage: Usage, rows: number, ...experts: number[]): void {
  usage.leaseBegins(1, Int32Array.of(0, 1), Int32Array.of(rows, rows), 2);
  usage.leaseBegins(2, Int32Array.from(experts), new Int32Array(experts.length).fill(rows), experts.length);
}

const at = (layer: number, expert: number) => layer * SHAPE.experts + expert;

test('tokens are rows, uses are counted for each, and the last use is known', () => {
  const usage = new Usage(SHAPE);
  pass(usage, 5, 2, 3);
  pass(usage, 1, 1, 3);
  expect(usage.tokens).toBe(6);
  expect([...usage.counts]).toEqual([0, 0, 0, 0, 6, 6, 0, 0, 0, 1, 5, 6]);
  expect(usage.age(at(2, 2))).toBe(1);
  expect(usage.age(at(2, 3))).toBe(0);
  expect(usage.age(at(2, 0))).toBe(Number.POSITIVE_INFINITY);
});

test('layers of a prediction head do not count', () => {
  const usage = new Usage(SHAPE);
  pass(usage, 1, 0, 1);
  usage.leaseBegins(3, Int32Array.of(0, 1), Int32Array.of(1, 1), 2);
  pass(usage, 1, 0, 1);
  expect(usage.tokens).toBe(2);
});

test('heat halves with every half-life, also across the point where its unit is taken back', () => {
  const usage = new Usage(SHAPE);
  pass(usage, 1, 0, 1);
  const before = usage.heat(at(2, 0));
  pass(usage, HALF_LIFE_TOKENS, 2, 3);
  expect(usage.heat(at(2, 0))).toBeCloseTo(before / 2, 12);
  for (let i = 0; i < 1030; i++) pass(usage, HALF_LIFE_TOKENS, 2, 3);
  pass(usage, 1, 0, 1);
  expect(usage.heat(at(2, 0))).toBeCloseTo(1, 9);
  expect(usage.heat(at(2, 2))).toBeCloseTo(2 * HALF_LIFE_TOKENS, -2);
  expect(usage.heat(at(2, 2))).toBeLessThan(Number.POSITIVE_INFINITY);
});

test('a history added to another is what one alone would have seen', () => {
  const together = new Usage(SHAPE);
  const first = new Usage(SHAPE);
  const second = new Usage(SHAPE);
  for (const usage of [together, first]) {
    pass(usage, 300, 0, 1);
    pass(usage, 2000, 1, 2);
  }
  for (const usage of [together, second]) pass(usage, 700, 0, 3);
  first.add(second);
  expect(first.tokens).toBe(together.tokens);
  expect(first.counts).toEqual(together.counts);
  for (let i = 0; i < together.size; i++) {
    expect(first.heat(i)).toBeCloseTo(together.heat(i), 6);
    expect(first.age(i)).toBe(together.age(i));
  }
});

test('a cleared history is a new one', () => {
  const usage = new Usage(SHAPE);
  pass(usage, 900, 0, 1);
  usage.clear();
  const fresh = new Usage(SHAPE);
  for (const each of [usage, fresh]) pass(each, 2, 2, 3);
  expect(usage).toEqual(fresh);
});
