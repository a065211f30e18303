import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { MIB } from '../common/units.ts';
import { inspectModel } from './describe.ts';
import { modelIdentity } from './identity.ts';
import { readModel } from './model-files.ts';
import { makePlanFile } from './plan-document.ts';
import { type PlanFile, planSchema } from './plan-schema.ts';

const NANO = fileURLToPath(new URL('../../models/nano', import.meta.url));
const oracle = (name: string) => fileURLToPath(new URL(`../../test/oracles/${name}`, import.meta.url));
/** Fields whose own fields are names of something. */
const NAMED = /^(resident_by_role|layouts)$/;
const directory = mkdtempSync(join(tmpdir(), 'coli-plan-document-'));
afterAll(() => rmSync(directory, { recursive: true }));

const plain = (model: string, more: object = {}) =>
  makePlanFile({
    options: { model, ram: 1024 * MIB, threads: 1, ...more },
    colibri: '9.9',
    measure: 'none',
    directory,
  });

describe('nano', () => {
  let plan: PlanFile;
  beforeAll(async () => {
    plan = await plain(NANO, { expertSlots: 48, context: 512 });
  });

  test('is what the schema says, also after a round through JSON', () => {
    expect(planSchema.parse(JSON.parse(JSON.stringify(plan)))).toEqual(plan);
    expect(plan).toMatchObject({ version: 1, colibri: '9.9' });
  });

  test('every field and every warning has its place in docs/formats.md', () => {
    const docs = readFileSync(new URL('../../docs/formats.md', import.meta.url), 'utf8');
    const section = docs.slice(docs.indexOf('## Plan'), docs.indexOf('## Saved keys'));
    const keys = (value: unknown): string[] =>
      Array.isArray(value)
        ? keys(value[0])
        : typeof value === 'object' && value !== null
          ? Object.entries(value).flatMap(([key, inner]) => [key, ...(NAMED.test(key) ? [] : keys(inner))])
          : [];
    const codes = readFileSync(new URL('./plan-warnings.ts', import.meta.url), 'utf8').matchAll(
      /\b[A-Z]{2,}_[A-Z_]+\b(?=')/g,
    );
    const told = [...keys(plan), ...[...codes].map(([code]) => code)];
    expect(told.length).toBeGreaterThan(90);
    expect(told.filter(name => !section.includes(name))).toEqual([]);
  });

  test('says what info says', () => {
    const info = inspectModel({ model: NANO, ram: 1024 * MIB, threads: 1, expertSlots: 48, context: 512 });
    const { memory, settings, model } = plan;
    expect(memory).toMatchObject({
      budget_bytes: info.plan.budget,
      total_bytes: info.plan.total,
      smallest_budget_bytes: info.plan.smallestBudget,
      resident_bytes: info.plan.resident,
      kv_bytes: info.plan.kv,
      scratch_bytes: info.plan.scratch,
      slots_bytes: info.plan.slots,
      overhead_bytes: info.plan.overhead,
    });
    expect(settings).toMatchObject({
      context: 512,
      threads: 1,
      expert_slots: 48,
      kernels: info.kernels,
      server: false,
    });
    expect(model).toMatchObject({ family: 'olmoe', moe_layers: 6, experts_per_layer: 32, experts_per_token: 4 });
    expect(model.identity).toBe(modelIdentity(readModel({ model: NANO })));
  });

  test('its parts add up', () => {
    const { memory, state, experts } = plan;
    const sum = (values: object) => Object.values(values).reduce((total: number, n) => total + n, 0);
    expect(sum(memory.overhead)).toBe(memory.overhead_bytes);
    expect(sum(memory.resident_by_role)).toBe(memory.resident_bytes);
    // keys and values of 256 float32 each in 6 layers
    expect(state.bytes_per_token).toBe(6 * 2 * 256 * 4);
    expect(state).toMatchObject({ bytes_per_session: 512 * state.bytes_per_token, fixed_bytes_per_session: 0 });
    expect(experts).toMatchObject({ total: 192, slots: 48, share: 0.25, slots_per_token: 24 });
    expect(experts.layers.map(({ layer }) => layer)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(experts.layers[0].disk_bytes).toEqual({ min: 81920, median: 81920, max: 81920 });
  });

  test('what a token moves', () => {
    const { traffic, memory } = plan;
    expect(traffic.expert_disk_bytes_per_token).toBe(24 * 81920);
    expect(traffic.expert_weights_per_token).toBe(24 * 3 * 256 * 192);
    // of the embedding one row is read, which does not count
    expect(traffic.dense_bytes_per_token).toBe(memory.resident_bytes - memory.resident_by_role['embedding']);
    expect(traffic.at_hit_rates.map(({ hit_rate }) => hit_rate)).toEqual([0, 0.25, 0.5, 0.75, 0.9, 0.97]);
    expect(traffic.at_hit_rates[2]).toEqual({
      hit_rate: 0.5,
      disk_bytes_per_token: 12 * 81920,
      tokens_per_second: null,
    });
    expect(traffic.estimated_hit_rate.low).toBe(0.25);
  });

  test('without measurements nothing is predicted', () => {
    expect(plan).toMatchObject({ ceilings: { disk: null, memory: null, compute: null }, prediction: null });
    expect(plan.next_step).toContain('--measure');
  });
});

test('a plan that could not be read again is not made', async () => {
  const options = { model: NANO, ram: 1024 * MIB, threads: 1 };
  const made = makePlanFile({ options, colibri: '9'.repeat(10_000), measure: 'none', directory });
  await expect(made).rejects.toThrow('colibri');
});

test('a policy that changes nothing is told', async () => {
  const notes = async (more: object) => (await plain(NANO, { usage: 'off', ...more })).notes.join();
  expect(await notes({ policy: 'lru', expertSlots: 48 })).toContain('policy lru: changes nothing here');
  expect(await notes({ policy: 'auto', expertSlots: 48 })).not.toContain('changes nothing');
  // with all experts in memory no policy has anything to do
  expect(await notes({ policy: 'lru' })).not.toContain('changes nothing');
});

describe('measured', () => {
  test('once, then stored; a prediction has its bounds in order', { timeout: 30_000 }, async () => {
    const make = (measure: 'stored' | 'short') =>
      makePlanFile({
        options: { model: NANO, ram: 1024 * MIB, threads: 1, expertSlots: 48 },
        colibri: '0',
        measure,
        promptTokens: 100,
        directory,
      });
    const before = await make('stored');
    expect(before.prediction).toBeNull();
    expect(readdirSync(directory)).toEqual([]);

    const first = await make('short');
    const { disk, memory, compute } = first.ceilings;
    expect([disk!.fresh, memory!.fresh, compute!.fresh]).toEqual([true, true, true]);
    expect(disk!.buffered!.bytes_per_second).toBeGreaterThan(1e6);
    expect(Object.keys(compute!.layouts).sort()).toEqual(['f32', 'q4g64', 'q8g64']);
    const { decode_tokens_per_second: range, decode_likely_tokens_per_second: likely } = first.prediction!;
    expect(range.low).toBeLessThanOrEqual(likely);
    expect(likely).toBeLessThanOrEqual(range.high);
    expect(first.prediction!.prompt_seconds).toBeCloseTo(100 / first.prediction!.prefill_tokens_per_second, 9);
    for (const { tokens_per_second } of first.traffic.at_hit_rates) {
      expect(tokens_per_second!.low).toBeLessThanOrEqual(tokens_per_second!.high);
    }

    const again = await make('short');
    expect(again.ceilings.disk).toEqual({ ...disk, fresh: false });
    expect(again.prediction).toEqual(first.prediction);
  });
});

describe('sessions', () => {
  test('fit as long as there is memory, and cost experts their place', async () => {
    const roomy = await plain(NANO);
    expect(roomy.concurrency.sessions_without_losing_slots).toBeGreaterThan(1);
    const { memory, concurrency } = roomy;
    const ram = Math.ceil((memory.smallest_budget_bytes + 3 * concurrency.bytes_per_session) / MIB + 1) * MIB;
    const tight = await plain(NANO, { ram, chunk: 1 });
    const free = tight.concurrency.sessions_without_losing_slots;
    const slotsOf = (slots: number) => inspectModel({ model: NANO, ram, threads: 1, chunk: 1, slots }).plan.expertSlots;
    expect(slotsOf(free)).toBe(tight.experts.slots);
    expect(slotsOf(free + 1)).toBeLessThan(tight.experts.slots);
    expect(tight.concurrency.sessions_that_fit).toBe(4);
    expect(() => inspectModel({ model: NANO, ram, threads: 1, chunk: 1, slots: 4 })).not.toThrow();
    expect(() => inspectModel({ model: NANO, ram, threads: 1, chunk: 1, slots: 5 })).toThrow(/too small/);
  });

  test('of a family with recurrent states have a part that does not grow', async () => {
    const { state, settings } = await plain(oracle('qwen36'), { context: 640 });
    expect(state.fixed_bytes_per_session).toBeGreaterThan(0);
    expect(state.bytes_per_session).toBe(state.bytes_per_token * settings.context + state.fixed_bytes_per_session);
  });
});

test.each(['glm-moe-dsa-fp8', 'gpt-oss-mxfp4', 'deepseek-v3-fp8', 'mixtral'])('%s adds up', async name => {
  const { memory, traffic, experts } = await plain(oracle(name));
  const roles = Object.values(memory.resident_by_role).reduce((sum, bytes) => sum + bytes, 0);
  expect(roles).toBe(memory.resident_bytes);
  expect(traffic.dense_bytes_per_token).toBeLessThanOrEqual(memory.resident_bytes);
  for (const { disk_bytes, placed_bytes } of experts.layers) {
    expect(disk_bytes.min).toBeGreaterThan(0);
    expect(placed_bytes.max).toBeLessThanOrEqual(memory.slot_bytes);
  }
});

test('a budget that is too small is refused as by info', async () => {
  await expect(plain(NANO, { ram: MIB })).rejects.toMatchObject({ code: 'RAM_TOO_SMALL' });
});
