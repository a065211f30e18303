import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MIB } from '../common/units.ts';
import type { EngineOptions } from './api.ts';
import { makePlanFile, type PlanWish } from './plan-document.ts';
import { planSchema } from './plan-schema.ts';

const NANO = fileURLToPath(new URL('../../models/nano', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'coli-plan-drives-'));
const model = join(folder, 'model');
const mirror = join(folder, 'mirror');
const directory = join(folder, 'cache');
beforeAll(() => {
  cpSync(NANO, model, { recursive: true });
  cpSync(NANO, mirror, { recursive: true });
});
afterAll(() => rmSync(folder, { recursive: true }));

const make = (options: Partial<EngineOptions>, more: Partial<PlanWish> = {}) =>
  makePlanFile({
    options: { model, ram: 1024 * MIB, threads: 1, expertSlots: 48, usage: 'off', ...options },
    colibri: '0',
    measure: 'stored',
    directory,
    ...more,
  });

test('declared speeds divide the experts, and predictions go by all drives together', { timeout: 30_000 }, async () => {
  const alone = await make({}, { measure: 'short' });
  expect(alone.ceilings.drives).toBeNull();
  const own = alone.ceilings.disk!.direct ?? alone.ceilings.disk!.buffered!;
  const speeds = [1e-3, 3e-3];
  const { ceilings, prediction, traffic } = await make({ mirrors: [mirror], driveSpeeds: speeds });
  const { declared, bytes_per_second, each } = ceilings.drives!;
  expect(declared).toBe(true);
  expect(each.map(drive => [drive.directory, drive.bytes_per_second])).toEqual([
    [model, 1e6],
    [mirror, 3e6],
  ]);
  expect(each[1].share).toBeGreaterThan(0.6);
  expect(each[1].share).toBeLessThan(0.9);
  // the drive that is done last decides
  const slowest = Math.max(each[0].share / 1e6, each[1].share / 3e6);
  expect(bytes_per_second).toBeCloseTo(1 / slowest, 3);
  const missed = (1 - traffic.estimated_hit_rate.likely) * traffic.expert_disk_bytes_per_token;
  expect(prediction!.seconds_per_token.disk).toBeCloseTo(missed / bytes_per_second, 4);
  expect(own.bytes_per_second).toBeGreaterThan(bytes_per_second);

  // a mirror on the model's own device adds nothing
  const measured = await make({ mirrors: [mirror] });
  expect(measured.ceilings.drives!.bytes_per_second).toBeCloseTo(own.bytes_per_second, 0);
  expect(measured.notes.join()).toContain('on the same device');
  const [once, twice] = [alone, measured].map(plan => plan.prediction!.decode_likely_tokens_per_second);
  expect(twice).toBeCloseTo(once, 6);
  // reads that are wanted through the page cache are predicted so
  const buffered = await make({ io: 'buffered' });
  const { disk } = buffered.ceilings;
  const { seconds_per_token } = buffered.prediction!;
  expect(seconds_per_token.disk).toBeCloseTo(missed / disk!.buffered!.bytes_per_second, 6);
});

describe('what a mirror cannot do is told', () => {
  test('one that is not there', async () => {
    const { notes, ceilings } = await make({ mirrors: [join(folder, 'none')] }, { measure: 'none' });
    expect(notes.join()).toMatch(/mirror .*none is not used: there is no such directory/);
    expect(ceilings.drives).toBeNull();
  });

  test('one whose speed nobody knows', async () => {
    const plan = await make({ mirrors: [mirror] }, { measure: 'none' });
    expect(plan.notes.join()).toContain('the mirrors are not in the prediction');
  });

  test('one with no expert', async () => {
    const empty = join(folder, 'empty');
    mkdirSync(empty);
    expect(readdirSync(empty)).toEqual([]);
    const { notes, ceilings } = await make({ mirrors: [empty], driveSpeeds: [1, 1] }, { measure: 'none' });
    expect(notes.join()).toContain('it has no file of the model');
    expect(ceilings.drives).toBeNull();
  });

  test('speeds without one, or not as many', async () => {
    await expect(make({ driveSpeeds: [1, 2] })).rejects.toMatchObject({ code: 'BAD_DRIVE_SPEEDS' });
    await expect(make({ mirrors: [mirror], driveSpeeds: [1] })).rejects.toMatchObject({ code: 'BAD_DRIVE_SPEEDS' });
  });
});

test('a plan of before there were drives in plans is one still', async () => {
  const plan = await make({}, { measure: 'none' });
  const { drives: _, ...ceilings } = plan.ceilings;
  expect(planSchema.parse({ ...plan, ceilings })).toEqual(plan);
});

test('a prompt is not made shorter than it was asked for', async () => {
  await expect(make({ context: 300 }, { promptTokens: 301 })).rejects.toMatchObject({
    code: 'BAD_FLAG',
    hint: 'give --ctx 301 or more',
  });
  await expect(make({}, { promptTokens: 5000 })).rejects.toMatchObject({ hint: 'this model takes up to 1024' });
  const { traffic } = await make({ context: 300 }, { promptTokens: 300, measure: 'none' });
  expect(traffic.conversation_tokens).toBe(300);
});
