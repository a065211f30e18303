import { expect, test } from 'vitest';
import { Interrupts } from './interrupts.ts';

function setUp() {
  const left: number[] = [];
  let now = 0;
  const interrupts = new Interrupts(
    code => left.push(code),
    () => now,
  );
  const press = (afterMs = 1000) => {
    now += afterMs;
    interrupts.press();
  };
  return { interrupts, left, press };
}

test('the first press stops the work, the second leaves with 130', async () => {
  const { interrupts, left, press } = setUp();
  await interrupts.during(async signal => {
    press();
    expect(signal.aborted).toBe(true);
    expect(left).toEqual([]);
    press();
    expect(left).toEqual([130]);
  });
});

test('while nothing runs yet, one press leaves', () => {
  const { left, press } = setUp();
  press();
  expect(left).toEqual([130]);
});

test('a signal that a launcher passes on at once counts as the same press', async () => {
  const { interrupts, left, press } = setUp();
  await interrupts.during(async () => {
    press();
    press(1);
    expect(left).toEqual([]);
  });
});

test('at a prompt the first press only counts, and stopping an answer is a first press too', async () => {
  const { interrupts, left, press } = setUp();
  interrupts.atPrompt = { drop: () => false, warn: () => {} };
  press();
  expect(left).toEqual([]);
  await interrupts.during(async () => press());
  expect(left).toEqual([]);
  press();
  expect(left).toEqual([130]);
});

test('dropping what was typed is no first press', () => {
  const { interrupts, left, press } = setUp();
  let typed = true;
  let warned = 0;
  interrupts.atPrompt = { drop: () => typed, warn: () => warned++ };
  press();
  expect(warned).toBe(0);
  typed = false;
  press();
  expect(warned).toBe(1);
  expect(left).toEqual([]);
  press();
  expect(warned).toBe(1);
  expect(left).toEqual([130]);
});

test('a new answer starts the count again', async () => {
  const { interrupts, left, press } = setUp();
  interrupts.atPrompt = { drop: () => false, warn: () => {} };
  await interrupts.during(async () => press());
  await interrupts.during(async signal => {
    expect(signal.aborted).toBe(false);
    press();
    expect(signal.aborted).toBe(true);
  });
  expect(left).toEqual([]);
});
