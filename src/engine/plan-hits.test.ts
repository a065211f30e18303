import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { MIB } from '../common/units.ts';
import { RecentTrace } from '../experts/replay/recorder.ts';
import { readModel } from './model-files.ts';
import { makePlanFile } from './plan-document.ts';
import { hitRates } from './plan-hits.ts';
import { traceHeader } from './routing.ts';
import { usagePlaces } from './usage-place.ts';

const NANO = fileURLToPath(new URL('../../models/nano', import.meta.url));
const files = readModel({ model: NANO });
const header = traceHeader(files);
const root = mkdtempSync(join(tmpdir(), 'coli-plan-hits-'));
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(root, { recursive: true });
});
beforeEach(() => {
  vi.stubEnv('XDG_CACHE_HOME', root);
  vi.stubEnv('COLI_USAGE', 'on');
});

const tracePath = () => `${usagePlaces(NANO, header.model)[0].path}.trace`;

/** Texts of so many tokens, each of which asks for the experts of one of `groups` groups of four. */
function remember(tokens: number, groups: number, kept = header): void {
  const recent = new RecentTrace(kept, MIB);
  const uses = new Int32Array(4).fill(1);
  for (let token = 0; token < tokens; token++) {
    const first = 4 * (token % groups);
    const experts = Int32Array.of(first, first + 1, first + 2, first + 3);
    for (let layer = 0; layer < 6; layer++) recent.leaseBegins(layer, experts, uses, 4);
  }
  mkdirSync(dirname(tracePath()), { recursive: true });
  writeFileSync(tracePath(), recent.bytes());
}

const hits = (slots: number, options = {}) => hitRates(files, options, { slots, moeLayers: 6 });

describe('the hit rate', () => {
  test('is a formula where nothing is remembered', () => {
    rmSync(tracePath(), { force: true });
    expect(hits(48)).toMatchObject({ low: 0.25, source: 'estimate', replayed_tokens: 0 });
  });

  test('is what a replay of the last texts finds with these slots', () => {
    remember(600, 2);
    expect(hits(48)).toEqual({ low: 1, likely: 1, high: 1, source: 'replay', replayed_tokens: 300 });
    const few = hits(24, { policy: 'lru' });
    expect(few).toMatchObject({ likely: 0, source: 'replay' });
    expect(hits(36).likely).toBeGreaterThan(few.likely);
    expect(hits(36).likely).toBeLessThan(1);
  });

  test('of short texts, of another model, of a damaged file, or without a history is a formula', () => {
    remember(500, 2);
    expect(hits(48).source).toBe('estimate');
    remember(600, 2, { ...header, model: 'ab'.repeat(32) });
    expect(hits(48).source).toBe('estimate');
    writeFileSync(tracePath(), 'COLITRC');
    expect(hits(48).source).toBe('estimate');
    remember(600, 2);
    expect(hits(48, { usage: 'off' }).source).toBe('estimate');
    expect(hits(192)).toMatchObject({ likely: 1, source: 'estimate' });
  });

  test('of the replay is the one of the plan', async () => {
    remember(600, 2);
    const options = { model: NANO, ram: 1024 * MIB, threads: 1, expertSlots: 48 };
    const { traffic } = await makePlanFile({ options, colibri: '0', measure: 'none', directory: root });
    expect(traffic.estimated_hit_rate).toMatchObject({ likely: 1, source: 'replay', replayed_tokens: 300 });
  });
});
