import type { Worker } from 'node:worker_threads';
import { expect, test, vi } from 'vitest';
import { softmax } from './rows.ts';
import { withCompute } from './test-support.ts';

const { spawned } = vi.hoisted(() => ({ spawned: [] as Worker[] }));

vi.mock('node:worker_threads', async importOriginal => {
  const original = await importOriginal<typeof import('node:worker_threads')>();
  class Recorded extends original.Worker {
    constructor(...args: ConstructorParameters<typeof Worker>) {
      super(...args);
      spawned.push(this);
    }
  }
  return { ...original, Worker: Recorded };
});

test('a lane whose thread has gone is an error of the next job, not a hang', async () => {
  await withCompute(
    { lanes: 3 },
    compute => compute.arenas.tensor(512, 512),
    async ({ compute, made }) => {
      expect(spawned.length).toBe(2);
      await spawned[1].terminate();
      softmax(compute, made, 512);
      expect(() => compute.run()).toThrow(expect.objectContaining({ code: 'LANE_DIED', details: { lane: 2 } }));
    },
  );
});
