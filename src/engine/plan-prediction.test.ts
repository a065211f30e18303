import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Traffic } from './plan-facts.ts';
import {
  limitOf,
  modelledHitRates,
  promptTime,
  type Shape,
  type Speeds,
  tokenTime,
  touchedShare,
} from './plan-prediction.ts';

/** 75 layers of 256 experts, 8 of which a token uses: 11.4 GB of experts and 9.9 GB of everything else for each token. */
const SHAPE: Shape = { layers: 78, moeLayers: 75, experts: 256, topK: 8 };
const TRAFFIC: Traffic = {
  denseBytes: 9.9e9,
  expertBytes: 11.4e9,
  expertDiskBytes: 11.4e9,
  expertWeights: 22e9,
  kvBytes: 0,
  work: new Map([
    ['q8g64', { bytes: 9.9e9, macs: 9.6e9 }],
    ['q4g64', { bytes: 11.4e9, macs: 22e9 }],
  ]),
};

/** Arithmetic and starting jobs cost nothing; memory gives 50 GB/s. */
function speeds(diskBytesPerSecond: number, more: Partial<Speeds['compute']> = {}): Speeds {
  const rates = { streamedBytesPerSecond: 50e9, macsPerSecond: 1e15, batchedMacsPerSecond: 1e15 };
  return {
    disk: { bytesPerSecond: diskBytesPerSecond, medianReadUs: 0 },
    direct: true,
    compute: { memoryBytesPerSecond: 50e9, jobUs: 0, layouts: { q8g64: rates, q4g64: rates }, ...more },
  };
}

describe('one token', () => {
  test.each([
    // GB/s, share of hits, tokens per second at most: what the disk alone allows
    [1e9, 0, 0.088],
    [3e9, 0.4, 0.44],
    [5e9, 0.5, 0.877],
  ])('the disk decides at %f B/s with %f of the bytes in memory', (disk, hit, tokens) => {
    const time = tokenTime(TRAFFIC, SHAPE, speeds(disk), hit);
    expect(1 / time.overlap).toBeCloseTo(tokens, 2);
    expect(limitOf(time)).toBe('disk');
    expect(1 / time.serial).toBeLessThan(1 / time.overlap);
  });

  test('memory decides when nothing is read', () => {
    const time = tokenTime(TRAFFIC, SHAPE, speeds(1e9), 1);
    expect(1 / time.overlap).toBeCloseTo(50 / 21.3, 3);
    expect(time.disk).toBe(0);
    expect(limitOf(time)).toBe('memory');
  });

  test('reads through the page cache move every byte three times', () => {
    const direct = tokenTime(TRAFFIC, SHAPE, speeds(1e9), 0).memory;
    const buffered = tokenTime(TRAFFIC, SHAPE, { ...speeds(1e9), direct: false }, 0).memory;
    expect(buffered - direct).toBeCloseTo((2 * 11.4) / 50, 6);
  });

  test('slow multiplying and slow starts of jobs are seen', () => {
    const rates = { streamedBytesPerSecond: 50e9, macsPerSecond: 1e9, batchedMacsPerSecond: 1e9 };
    const slow = tokenTime(TRAFFIC, SHAPE, speeds(1e9, { layouts: { q8g64: rates, q4g64: rates } }), 1);
    expect(slow.compute).toBeCloseTo(31.6, 6);
    expect(limitOf(slow)).toBe('compute');
    expect(limitOf(tokenTime(TRAFFIC, SHAPE, speeds(1e9, { jobUs: 1e4 }), 1))).toBe('latency');
  });

  test('the bounds are in order, and more hits are never slower', () => {
    const hit = fc.double({ min: 0, max: 1, noNaN: true });
    const disk = fc.double({ min: 1e7, max: 2e10, noNaN: true });
    fc.assert(
      fc.property(hit, hit, disk, fc.boolean(), (a, b, bytesPerSecond, direct) => {
        const given = { ...speeds(bytesPerSecond), direct, disk: { bytesPerSecond, medianReadUs: 100 } };
        const fewer = tokenTime(TRAFFIC, SHAPE, given, Math.min(a, b));
        const more = tokenTime(TRAFFIC, SHAPE, given, Math.max(a, b));
        expect(fewer.overlap).toBeLessThanOrEqual(fewer.serial);
        expect(more.serial).toBeLessThanOrEqual(fewer.serial * (1 + 1e-12));
        expect(more.overlap).toBeLessThanOrEqual(fewer.overlap * (1 + 1e-12));
      }),
      { numRuns: 200, seed: 5 },
    );
  });
});

describe('a prompt', () => {
  test('of experts that rows choose at random', () => {
    for (const [tokens, share] of [
      [8, 0.22],
      [32, 0.64],
      [128, 0.98],
    ] as const)
      expect(touchedShare(SHAPE, tokens)).toBeCloseTo(share, 2);
  });

  test('longer passes read less; what is kept is read once', () => {
    const time = (chunk: number, keptShare: number) =>
      promptTime(TRAFFIC, SHAPE, speeds(10e9), { tokens: 512, chunk, keptShare });
    // all experts: 365 GB at 10 GB/s
    expect(time(512, 0).seconds).toBeCloseTo(36.5, 1);
    expect(time(128, 0).seconds).toBeCloseTo(4 * 36.5 * 0.983, 0);
    expect(time(128, 1).seconds).toBeCloseTo(36.5 * 0.983, 0);
  });

  test('multiplying decides when it takes longer', () => {
    const rates = { streamedBytesPerSecond: 50e9, macsPerSecond: 1e9, batchedMacsPerSecond: 31.6e9 };
    const slow = speeds(1e12, { layouts: { q8g64: rates, q4g64: rates } });
    expect(promptTime(TRAFFIC, SHAPE, slow, { tokens: 100, chunk: 64, keptShare: 0 }).seconds).toBeCloseTo(100, 6);
  });
});

test('hit rates before anything is known', () => {
  expect(modelledHitRates(192, 192, 24)).toMatchObject({ low: 1, likely: 1, high: 1 });
  const some = modelledHitRates(50, 200, 24);
  expect(some.low).toBe(0.25);
  expect(some.likely).toBeGreaterThan(some.low);
  expect(some.high).toBeGreaterThan(some.likely);
  // nothing outlives a token when there is no room for one
  expect(modelledHitRates(20, 200, 24).low).toBe(0);
});
