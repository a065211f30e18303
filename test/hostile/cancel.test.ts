/** Stopping a request at any moment: it ends as cancelled, and the engine is as good as new. */

import { beforeAll, describe, expect, test } from 'vitest';
import type { GenerateEvent } from '../../src/engine/api.ts';
import { writeTiny } from '../fixtures/tiny.ts';
import { bytesOf, fileDirectory, type Run, withBench } from './engine-support.ts';

const model = fileDirectory();
const PROMPT = bytesOf('Hello there');
const OTHER = bytesOf('Help me');
const REQUEST = { temperature: 0, maxTokens: 4, ignoreEos: true };
/** Small chunks and few slots: a run that looks at the cancellation flag, waits and reads many times. */
const OPTIONS = { model, expertSlots: 3, chunk: 4, readers: 2 };

let clean: Run;
let cleanOther: Run;

beforeAll(async () => {
  writeTiny(model);
  clean = await withBench(OPTIONS, {}, bench => bench.run(PROMPT, REQUEST));
  cleanOther = await withBench(OPTIONS, {}, bench => bench.run(OTHER, REQUEST));
});

function expectCancelled(run: Run): void {
  expect(run.error).toBeNull();
  expect(run.end).toMatchObject({ finishReason: 'cancelled', stopReason: null, tokenIds: run.tokenIds });
  expect(run.end?.text).toBe(run.text);
  expect(run.tokenIds).toEqual(clean.tokenIds.slice(0, run.tokenIds.length));
  expect(clean.text.startsWith(run.text)).toBe(true);
}

test('at every look at the flag, in the prompt and between tokens', async () => {
  await withBench(OPTIONS, {}, bench => {
    const reached = new Set<number>();
    let looks = 0;
    for (let stopAt = 1; ; stopAt++) {
      looks = 0;
      // half of the runs start cold, half with what the run before has left
      if (stopAt % 2 === 0) bench.session.truncate(0);
      const run = bench.run(PROMPT, REQUEST, { cancelled: () => ++looks >= stopAt });
      if (run.end?.finishReason !== 'cancelled') {
        expect(run.end).toMatchObject({ text: clean.end!.text, finishReason: 'length' });
        break;
      }
      expectCancelled(run);
      reached.add(run.tokenIds.length);
      const next = bench.run(OTHER, REQUEST);
      expect(next.end).toMatchObject({ text: cleanOther.end!.text, tokenIds: cleanOther.tokenIds });
    }
    // how often a run waits differs, so where exactly they stopped does too
    expect(reached.has(0)).toBe(true);
    expect(reached.size).toBeGreaterThan(1);
  });
});

test.each([0, 1, 2, 3])('after %i tokens', async tokens => {
  await withBench(OPTIONS, {}, bench => {
    let seen = 0;
    const onEvent = (event: GenerateEvent) => {
      if (event.type === 'token') seen++;
    };
    const run = bench.run(PROMPT, REQUEST, { onEvent, cancelled: () => seen === tokens });
    expectCancelled(run);
    expect(run.tokenIds).toHaveLength(tokens);
    expect(bench.run(PROMPT, REQUEST).end).toMatchObject({ text: clean.end!.text, finishReason: 'length' });
  });
});

describe('while a read does not come back', () => {
  /** A runtime whose first expert read waits until `release`. */
  async function withHeldRead(use: Parameters<typeof withBench>[2], release: { now: () => void }): Promise<void> {
    const gate = new Int32Array(new SharedArrayBuffer(4));
    release.now = () => {
      Atomics.store(gate, 0, 1);
      Atomics.notify(gate, 0);
    };
    const residentReads = await withBench(OPTIONS, {}, ({ runtime }) => {
      const { records, dense } = runtime.files.records;
      return [...dense.values()].flat().reduce((sum, record) => sum + records[record].extents.length, 0);
    });
    try {
      await withBench(OPTIONS, { faults: { nth: residentReads + 1, kind: 'hold', gate } }, use);
    } finally {
      release.now();
    }
  }

  test('the request ends at once, and the next one gets the expert when it arrives', async () => {
    const release = { now: () => {} };
    await withHeldRead(bench => {
      let looks = 0;
      const run = bench.run(PROMPT, REQUEST, { cancelled: () => ++looks > 4 });
      expectCancelled(run);
      expect(run.tokenIds).toEqual([]);
      // still held: a request that needs nothing else would wait, so it is cancelled again
      looks = 0;
      expectCancelled(bench.run(PROMPT, REQUEST, { cancelled: () => ++looks > 4 }));
      release.now();
      expect(bench.run(PROMPT, REQUEST).end).toMatchObject({ text: clean.end!.text, finishReason: 'length' });
      expect(bench.run(OTHER, REQUEST).end?.text).toBe(cleanOther.end?.text);
    }, release);
  });

  test('closing meanwhile comes to an end', async () => {
    const release = { now: () => {} };
    await withHeldRead(bench => {
      let looks = 0;
      expectCancelled(bench.run(PROMPT, REQUEST, { cancelled: () => ++looks > 2 }));
    }, release);
  }, 30_000);
});
