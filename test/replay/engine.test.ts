/** What a replay says of a run is what happened in it: the same leases, and the same hits. */

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readModel } from '../../src/engine/model-files.ts';
import { Routing } from '../../src/engine/routing.ts';
import type { Runtime } from '../../src/engine/runtime.ts';
import type { Session } from '../../src/engine/session.ts';
import { makePolicy } from '../../src/experts/policies/policies.ts';
import { replay } from '../../src/experts/replay/replay.ts';
import { passCount } from '../../src/experts/replay/trace.ts';
import { readTrace } from '../../src/experts/replay/trace-format.ts';
import { withRuntime } from '../support/packs.ts';

const NANO = 'models/nano';
const SLOTS = 70;
const PROMPT = Array.from({ length: 40 }, (_, i) => 100 + ((i * 37) % 900));

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(os.tmpdir(), 'coli-replay-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** A prompt in chunks, then tokens one by one. */
function speak({ batch, store }: Runtime, session: Session): number {
  session.feedAll(PROMPT, () => {});
  for (let token = 0; token < 60; token++) session.feed([(token * 101) % 4000]);
  expect(batch.rows).toBe(1);
  store.settle();
  return store.counters.hits;
}

test.each(['lru', 'lfru'] as const)('a run with %s, replayed, has the hits that it had', async policy => {
  const trace = join(directory, `${policy}.trace`);
  const options = { model: NANO, expertSlots: SLOTS, chunk: 10, prefetch: 'off' as const, policy, trace, threads: 1 };
  const routing = new Routing(readModel(options), options, false, () => {});
  const hits = await withRuntime(
    options,
    (runtime, session) => {
      runtime.passDone = () => routing.passDone();
      return speak(runtime, session);
    },
    { observers: routing.observers, policy: slots => routing.policy(slots) },
  );
  routing.close();
  const recorded = readTrace(trace);
  expect(recorded.header).toMatchObject({ label: 'nano', experts: 32, topK: 4 });
  expect(passCount(recorded)).toBe(4 + 60);
  expect(recorded.rows[0]).toBe(10);
  const replayed = replay(recorded, SLOTS, makePolicy(policy));
  expect(replayed.hits).toBe(hits);
  expect(replayed.hits).toBeGreaterThan(100);
});
