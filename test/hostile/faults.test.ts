/** The n-th read fails, for every n of a short run: a named error, no wrong text, no waiting, and the engine goes on. */

import { beforeAll, describe, expect, test } from 'vitest';
import { fileDirectory, rejection, withBench } from './engine-support.ts';
import { type CleanRun, cleanRun, expectNoHarm, expectReadError, PROMPT, REQUEST, STEPWISE } from './fault-support.ts';

const model = fileDirectory();
const stepwise = { model, ...STEPWISE };
let clean: CleanRun;

/** Two layers, so that the second is read ahead while the first computes; several reads at once. */
const deepModel = fileDirectory();
const atOnce = { model: deepModel, expertSlots: 6, readers: 3 };
let cleanDeep: CleanRun;

beforeAll(async () => {
  clean = await cleanRun(model, 1);
  cleanDeep = await cleanRun(deepModel, 2);
});

describe.each(['eio', 'short'] as const)('every read of a run, one by one: %s', kind => {
  const fault = (nth: number) => ({ faults: { nth, kind } });

  test('while the resident weights are loaded', async () => {
    for (let nth = 1; nth <= clean.residentReads; nth++) {
      expectReadError(await rejection(withBench(stepwise, fault(nth), () => {})), kind);
    }
  });

  test('while experts are loaded', async () => {
    const seen = new Set<number>();
    for (let nth = clean.residentReads + 1; nth <= clean.totalReads; nth++) {
      await withBench(stepwise, fault(nth), bench => {
        const run = bench.run(PROMPT, REQUEST);
        expectReadError(run.error, kind);
        expect(run.error?.message).toMatch(/^layer [01] expert [0-3]: /);
        expectNoHarm(bench, run, clean);
        seen.add(run.tokenIds.length);
      });
    }
    // some failed in the prompt, some between tokens
    expect(seen.has(0)).toBe(true);
    expect(seen.size).toBeGreaterThan(1);
  });

  test('one read later nothing fails: all reads were met', async () => {
    await withBench(stepwise, fault(clean.totalReads + 1), bench => {
      const run = bench.run(PROMPT, REQUEST);
      expect(run.error).toBeNull();
      expect(run.end?.text).toBe(clean.run.end?.text);
    });
  });

  test('with reads ahead and several readers: an error, or the right answer', async () => {
    let failed = 0;
    for (let nth = cleanDeep.residentReads + 1; nth <= cleanDeep.residentReads + 5; nth++) {
      await withBench(atOnce, fault(nth), bench => {
        const run = bench.run(PROMPT, REQUEST);
        if (run.error) {
          failed++;
          expectReadError(run.error, kind);
          expectNoHarm(bench, run, cleanDeep);
        } else expect(run.end?.text).toBe(cleanDeep.run.end?.text);
      });
    }
    expect(failed).toBeGreaterThan(0);
  });
});
