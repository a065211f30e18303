import { fileURLToPath } from 'node:url';
import type { Worker } from 'node:worker_threads';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MIB } from '../src/common/units.ts';
import { readModel } from '../src/engine/model-files.ts';
import { Runtime } from '../src/engine/runtime.ts';
import { layoutBytes } from '../src/quant/layouts.ts';
import { complaints, MAX_ENGINE_BYTES, takePrefill } from './profile.ts';
import { steadyBytes, withLaneWorkers } from './profile-allocations.ts';
import { measureBarrier } from './profile-barrier.ts';
import { PHASE_NAMES } from './profile-clock.ts';
import { measureMemory } from './profile-memory.ts';
import { tellMatrices, WeightPhases } from './profile-phases.ts';
import { type Section, Subject } from './profile-subject.ts';

const NANO = fileURLToPath(new URL('../models/nano', import.meta.url));
const TOKENS = 2;

describe('arguments', () => {
  test('--prefill is taken out', () => {
    expect(takePrefill(['--tokens', '3', '--prefill', '64', '--json'])).toEqual({
      prefill: 64,
      rest: ['--tokens', '3', '--json'],
    });
    expect(takePrefill(['--prefill=8'])).toEqual({ prefill: 8, rest: [] });
    expect(takePrefill(['--json'])).toEqual({ prefill: 0, rest: ['--json'] });
  });

  test.each([['--prefill'], ['--prefill', '0'], ['--prefill', 'x']])('refuses %s %s', (...args) => {
    expect(() => takePrefill(args)).toThrow(/--prefill/);
  });
});

test('garbage in a lane, or much in the engine, is a complaint', () => {
  expect(complaints({ pass: 4000, sampler: 6000, lanes: [0, 0] })).toEqual([]);
  expect(complaints({ pass: MAX_ENGINE_BYTES, sampler: 1, lanes: [0, 16] })).toEqual([
    expect.stringContaining('lane 2 allocates 16.0 bytes'),
    expect.stringContaining('the engine allocates 10001 bytes'),
  ]);
  expect(complaints({ pass: 0, sampler: 0, lanes: [Number.NaN] })).toHaveLength(1);
});

test('a lane that was still being compiled counts by its last runs', () => {
  expect(steadyBytes([900, 40, 0, 0])).toBe(0);
  expect(steadyBytes([900, 16, 16, 16, 0, 16, 16, 16])).toBe(16);
  // a collection ran in these
  expect(steadyBytes([16, 16, -400, 16, 16, -400, 16, -400])).toBe(16);
  expect(steadyBytes([16, -400, -400])).toBeNaN();
});

test('memory is read by one lane and by all', async () => {
  const speeds = await measureMemory(2, 'wasm', 2 * MIB);
  expect(speeds.map(({ how, lanes }) => `${lanes} ${how.split(',')[0]}`)).toEqual(
    [1, 2].flatMap(lanes => ['memchr', 'q4g64 matrix', 'q8g64 matrix'].map(how => `${lanes} ${how}`)),
  );
  expect(speeds.every(({ bytesPerSecond }) => bytesPerSecond > 0)).toBe(true);
});

describe('a profile of the bundled model on two lanes', () => {
  let runtime: Runtime;
  let lanes: Worker[];
  let before: Float32Array;
  let after: Float32Array;
  let decode: Section;
  let prefill: Section;

  beforeAll(async () => {
    const phases = new WeightPhases();
    const files = tellMatrices(readModel({ model: NANO }), phases);
    const options = { model: NANO, ram: 2 ** 30, threads: 2, readers: 1, context: 64, chunk: 16 };
    const opened = await withLaneWorkers(() => Runtime.open(options, undefined, undefined, files));
    runtime = opened.value;
    lanes = opened.lanes;
    const subject = new Subject(runtime, phases, TOKENS);
    const plainMs = [subject.plainDecode(1)];
    before = runtime.model.logits(0, 1).slice();
    decode = subject.decode(2, plainMs);
    after = runtime.model.logits(0, 1).slice();
    prefill = subject.prefill(16, 2, plainMs);
  });
  afterAll(() => runtime.close());

  test('finds the lane worker among the threads', () => {
    expect(lanes.map(lane => lane.threadName)).toEqual(['lane 1']);
  });

  test('the logits are the same bits as without it', () => {
    expect(new Int32Array(after.buffer)).toEqual(new Int32Array(before.buffer));
  });

  test('the phases sum to the time, and none is unknown', () => {
    const sum = PHASE_NAMES.reduce((total, phase) => total + decode.phases[phase], 0);
    expect(sum).toBeCloseTo(decode.total, 9);
    expect(decode.steps).toBe(2 * TOKENS);
    for (const phase of ['qkv', 'core', 'output', 'router', 'gateUp', 'down', 'head', 'sampler', 'embedding'] as const)
      expect(decode.phases[phase], phase).toBeGreaterThan(0);
    expect(decode.phases.unknown).toBe(0);
    expect(decode.phases.otherMatrices).toBe(0);
  });

  test('weights are counted by phase: each matrix of the layer once, experts of the router only', () => {
    const { shape, records } = runtime.files;
    const { weightBytes } = decode.counts;
    const bytesOf = (record: number) => {
      const parts = records.records[record].parts;
      return parts.map(({ layout, rows, columns }) => layoutBytes(layout, rows, columns));
    };
    const dense = (suffix: string) =>
      [...records.dense]
        .filter(([name]) => name.endsWith(suffix))
        .flatMap(([, indices]) => indices.flatMap(bytesOf))
        .reduce((sum, bytes) => sum + bytes, 0);
    expect(weightBytes.output).toBe(dense('.o_proj.weight'));
    expect(weightBytes.qkv).toBe(dense('.q_proj.weight') + dense('.k_proj.weight') + dense('.v_proj.weight'));
    expect(weightBytes.router).toBe(dense('.mlp.gate.weight'));
    const [gate, up, down] = bytesOf(records.firstExpert[shape.moeLayers[0]]);
    const used = shape.moeLayers.length * shape.topK;
    expect(weightBytes.gateUp).toBe(used * (gate + up));
    expect(weightBytes.down).toBe(used * down);
    expect(weightBytes.head).toBeGreaterThan(0);
    expect(weightBytes.otherMatrices).toBe(0);
  });

  test('a chunk has jobs that the lanes share, and no logits', () => {
    expect(prefill.tokensPerStep).toBe(16);
    expect(prefill.counts.shared).toBeGreaterThan(0);
    expect(prefill.phases.head).toBe(0);
    expect(prefill.phases.sampler).toBe(0);
  });

  test('a job without work has a price', () => {
    const { spinningUs, parkedUs } = measureBarrier(runtime.compute.lanes);
    expect(spinningUs).toBeGreaterThan(0);
    expect(parkedUs).toBeGreaterThan(0);
  });
});
