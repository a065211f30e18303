import { expect, it } from 'vitest';
import { type SpeedLimits, speedOf } from './speed.ts';

const MB = 1e6;

/** 10 tokens of 100 ms: 30 MB of experts each, of which 20 MB had to be read. */
const decode = {
  steps: 10,
  decodeRows: 10,
  totalUs: 1e6,
  waitUs: 0,
  pinnedBytes: 40 * MB,
  cachedBytes: 60 * MB,
  aheadBytes: 50 * MB,
  diskBytes: 150 * MB,
  wastedBytes: 500 * MB,
};
const limits: SpeedLimits = {
  diskBytesPerSecond: 250 * MB,
  memoryBytesPerSecond: 4000 * MB,
  computeUs: 40_000,
  denseBytes: 25 * MB,
  kvBytes: 5 * MB,
  copies: 1,
  readers: 4,
};

it('takes the longest of disk, memory and arithmetic as the ceiling', () => {
  const speed = speedOf(decode, limits)!;
  expect(speed).toMatchObject({ tokens: 10, measuredUs: 100_000, neededBytes: 20 * MB, diskUs: 80_000 });
  // 25 + 5 MB of the model, 30 MB of experts, 20 MB written by the disk
  expect(speed).toMatchObject({ touchedBytes: 80 * MB, memoryUs: 20_000, computeUs: 40_000 });
  expect(speed).toMatchObject({ ceilingUs: 80_000, serialUs: 120_000, phi: 0.8, phiSerial: 1.2, limit: 'disk' });
});

it.each([
  ['disk', {}],
  ['compute', { diskBytesPerSecond: 1000 * MB, computeUs: 90_000 }],
  ['DRAM', { diskBytesPerSecond: 1000 * MB, memoryBytesPerSecond: 1000 * MB, computeUs: 90_000 }],
  ['latency', { diskBytesPerSecond: 2000 * MB, computeUs: 30_000 }],
])('names %s as the limit', (limit, change) => {
  expect(speedOf(decode, { ...limits, ...change })!.limit).toBe(limit);
});

it('counts the bytes of buffered reads as often as memory moves them', () => {
  expect(speedOf(decode, { ...limits, copies: 3 })!.touchedBytes).toBe(120 * MB);
});

it('counts the model once for a step that decodes several answers', () => {
  const speed = speedOf({ ...decode, steps: 5 }, limits)!;
  expect(speed.touchedBytes).toBe(65 * MB);
});

it('goes by what could be measured, and says nothing without a token or without a limit', () => {
  const speed = speedOf(decode, { ...limits, diskBytesPerSecond: null, memoryBytesPerSecond: null })!;
  expect(speed).toMatchObject({ diskUs: null, memoryUs: null, ceilingUs: 40_000, phi: 0.4, limit: 'latency' });
  expect(speedOf({ ...decode, decodeRows: 0 }, limits)).toBeNull();
  const nothing = { diskBytesPerSecond: null, memoryBytesPerSecond: null, computeUs: null };
  expect(speedOf(decode, { ...limits, ...nothing })).toBeNull();
});

it('goes by what the run has reached where the machine looked slower when it was measured', () => {
  const waited = { ...decode, waitUs: 300_000 };
  const slow = { ...limits, diskBytesPerSecond: 10 * MB, memoryBytesPerSecond: 10 * MB, computeUs: 131_000 };
  const speed = speedOf(waited, slow)!;
  expect(speed).toMatchObject({ diskUs: 100_000, computeUs: 70_000, phi: 1 });
  const memory = speedOf(waited, { ...slow, diskBytesPerSecond: null, computeUs: null })!;
  expect(memory).toMatchObject({ memoryUs: 100_000, phi: 1, limit: 'DRAM' });
  const compute = speedOf(waited, { ...limits, diskBytesPerSecond: null, computeUs: 131_000 })!;
  expect(compute).toMatchObject({ computeUs: 70_000, phi: 0.7, limit: 'compute' });
});
