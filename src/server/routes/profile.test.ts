import { expect, test } from 'vitest';
import { PhaseClock } from '../../telemetry/clock.ts';
import { PHASE, WORK_AT } from '../../telemetry/fields.ts';
import { createTelemetry, type TelemetryShape } from '../../telemetry/memory.ts';
import { TelemetryReader } from '../../telemetry/reader.ts';
import { Recorder } from '../../telemetry/recorder.ts';
import { ask, startTestServer, testEngine, testRunner } from '../test-support.ts';

/** A server whose engine has made a token: three experts found, one read from the first mirror. */
async function serverAfterAToken(shape: TelemetryShape = { layers: 3, experts: 4, moeLayers: [1, 2] }) {
  const server = await startTestServer();
  const clock = new PhaseClock();
  const counters = new Map<number, number>();
  const recorder = new Recorder(createTelemetry(shape), clock, into => {
    for (const [at, value] of counters) into[at] = value;
  });
  recorder.everyStep = true;
  const token = () => {
    const mark = recorder.requestBegins();
    recorder.stepBegins(0, 1);
    clock.enter(PHASE.experts);
    recorder.leaseBegins(1, Int32Array.of(0, 2, 3), Int32Array.of(1, 1, 2), 3);
    const add = (name: string, value: number) =>
      counters.set(WORK_AT[name], (counters.get(WORK_AT[name]) ?? 0) + value);
    add('requests', 4);
    add('cachedHits', 3);
    add('diskHits', 1);
    add('readBytes', 1000);
    recorder.readEnds(1000, 250, 1);
    recorder.layerEnds(1);
    recorder.firstToken(5000);
    recorder.requestEnds(mark);
    recorder.stepEnds(false);
  };
  token();
  recorder.heat.set([0.123456], shape.experts);
  recorder.experts(tiers => tiers.set([3, 2, 1, 0], shape.experts), true);
  const telemetry = new TelemetryReader(recorder.shared);
  server.state.ready(
    { ...testEngine, telemetry },
    testRunner(async function* () {}),
  );
  return { ...server, token };
}

test('/profile tells sums since the start and those of the last request', async () => {
  const { port, token } = await serverAfterAToken();
  token();
  const { json, status } = await ask(port, '/profile');
  expect(status).toBe(200);
  expect(json.since_start.decode).toMatchObject({
    steps: 2,
    decode_rows: 2,
    experts: { requests: 8, cached: { hits: 6 } },
  });
  expect(json.last_request.decode).toMatchObject({ steps: 1, experts: { requests: 4, disk: { hits: 1 } } });
  expect(json.last_request.decode.disk).toMatchObject({ reads: 1, bytes: 1000, bytes_by_drive: [0, 1000, 0, 0, 0] });
  expect(json.last_request.percentiles.first_token_us.count).toBe(1);
  expect(json.last_request.percentiles.read_us.p50).toBeCloseTo(250, -1);
  expect(json.last_request.layers.decode.requests).toEqual([0, 4, 0]);
  expect(json.last_request).toMatchObject({ version: 1, speed: null, limits: null });
});

test('/experts tells where every expert is, how hot, and what the last turn used', async () => {
  const { port } = await serverAfterAToken();
  const { json } = await ask(port, '/experts');
  expect(json).toEqual({
    version: 1,
    experts: 4,
    in_memory: 2,
    pinned: 1,
    layers: [
      { layer: 1, places: 'pcld', heat: [0.123, 0, 0, 0], last_turn: [1, 0, 1, 2] },
      { layer: 2, places: 'dddd', heat: [0, 0, 0, 0], last_turn: [0, 0, 0, 0] },
    ],
  });
});

test('what has not changed is not sent again, and is not made for everyone who asks', async () => {
  const { port, token } = await serverAfterAToken();
  const first = await ask(port, '/experts');
  const etag = String(first.headers.etag);
  const again = await ask(port, '/experts', { headers: { 'if-none-match': etag } });
  expect([again.status, again.text]).toEqual([304, '']);
  token();
  const soon = await ask(port, '/experts');
  expect(soon.headers.etag).toBe(etag);
});

test('twenty thousand experts fit in a few hundred kilobytes', async () => {
  const moeLayers = Array.from({ length: 79 }, (_, i) => i + 1);
  const { port } = await serverAfterAToken({ layers: 80, experts: 256, moeLayers });
  const { text, json } = await ask(port, '/experts');
  expect(json.layers).toHaveLength(79);
  expect(text.length).toBeLessThan(300_000);
});

test('/metrics has the same numbers with their tiers, drives and buckets', async () => {
  const { port } = await serverAfterAToken();
  const { text } = await ask(port, '/metrics');
  expect(text).toContain('coli_engine_expert_lookups_total{tier="cached"} 3\n');
  expect(text).toContain('coli_engine_expert_lookups_total{tier="disk"} 1\n');
  expect(text).toContain('coli_engine_drive_read_bytes_total{drive="1"} 1000\n');
  expect(text).toMatch(/^# TYPE coli_engine_expert_read_seconds histogram$/m);
  expect(text).toContain('coli_engine_expert_read_seconds_bucket{le="0.000128"} 0\n');
  expect(text).toContain('coli_engine_expert_read_seconds_bucket{le="0.000256"} 1\n');
  expect(text).toContain('coli_engine_expert_read_seconds_bucket{le="+Inf"} 1\n');
  expect(text).toContain('coli_engine_expert_read_seconds_sum 0.00025\n');
  expect(text).toContain('coli_engine_expert_read_seconds_count 1\n');
});

test('without a model there is nothing to tell', async () => {
  const { port } = await startTestServer({ loading: true });
  for (const path of ['/profile', '/experts']) expect((await ask(port, path)).status).toBe(503);
  expect((await ask(port, '/metrics')).text).not.toContain('tier=');
});
