import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { OpCode } from '../kernels/commands.ts';
import { RandomValues } from '../kernels/random-values.ts';
import type { Tensor } from './arenas.ts';
import type { Compute } from './compute.ts';
import { add, clamp, rmsNorm, softmax } from './rows.ts';
import { withCompute } from './test-support.ts';

const ROWS = 300;
const COLUMNS = 200;
const TENSORS = 6;

const tensorsOf = (compute: Compute): Tensor[] =>
  Array.from({ length: TENSORS }, () => compute.arenas.tensor(ROWS, COLUMNS));

function fill(compute: Compute, tensors: readonly Tensor[], seed: number): void {
  const random = new RandomValues(seed);
  for (const tensor of tensors) compute.arenas.floats(tensor).set(random.floats(ROWS * COLUMNS, 'ordinary'));
}

/** Jobs of up to four commands that do not depend on each other, on rows of random number. */
function runJobs(compute: Compute, tensors: readonly Tensor[], seed: number, jobs: number): void {
  const random = new RandomValues(seed);
  for (let job = 0; job < jobs; job++) {
    const commands = random.integer(1, 4);
    for (let i = 0; i < commands; i++) {
      const x = tensors[i];
      const rows = random.integer(1, ROWS);
      const op = random.integer(0, 3);
      if (op === 0) add(compute, x, tensors[4], rows);
      else if (op === 1) softmax(compute, x, rows);
      else if (op === 2) clamp(compute, x, 0.5, rows);
      else rmsNorm(compute, x, { ...tensors[5], rows: 1 }, 1e-5, rows);
    }
    compute.run();
  }
}

/** A digest of all bits. */
function bitsOf(compute: Compute, tensors: readonly Tensor[]): string {
  const hash = createHash('sha256');
  for (const tensor of tensors) hash.update(compute.arenas.ints(tensor).slice());
  return hash.digest('hex');
}

test.each([2, 3, 5])('random jobs on %i lanes give the bits of one', async lanes => {
  const run = (count: number) =>
    withCompute({ lanes: count }, tensorsOf, ({ compute, made }) => {
      fill(compute, made, 1);
      runJobs(compute, made, 2, 200);
      return bitsOf(compute, made);
    });
  expect(await run(lanes)).toBe(await run(1));
});

describe('a command that fails', () => {
  /** No op has this code. */
  const UNKNOWN = 99 as OpCode;

  test.each([1, 3])('throws on %i lanes, leaves no command behind, and the next job is right', async lanes => {
    await withCompute({ lanes }, tensorsOf, ({ compute, made }) => {
      const expected = () => {
        fill(compute, made, 3);
        runJobs(compute, made, 4, 5);
        return bitsOf(compute, made);
      };
      const right = expected();
      add(compute, made[0], made[1], ROWS);
      compute.lanes.command(UNKNOWN, 0, 1000, 1_000_000);
      expect(() => compute.run()).toThrow(/op code 99|lane \d failed/);
      expect(expected()).toBe(right);
    });
  });

  test('too many commands for a job are refused', async () => {
    await withCompute({ lanes: 1 }, tensorsOf, ({ compute, made }) => {
      for (let i = 0; i < 2048; i++) add(compute, made[0], made[1], 1);
      expect(() => add(compute, made[0], made[1], 1)).toThrow(expect.objectContaining({ code: 'JOB_TOO_LARGE' }));
    });
  });
});

test('an empty job does nothing', async () => {
  await withCompute({ lanes: 2 }, tensorsOf, ({ compute }) => {
    compute.run();
    compute.run();
  });
});
