import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type ColiError, UsageError } from '../common/errors.ts';
import { MIB } from '../common/units.ts';
import type { EngineOptions } from './api.ts';
import { inspectModel } from './describe.ts';
import { openEngine } from './engine.ts';
import { readModel } from './model-files.ts';
import { planModel } from './model-plan.ts';
import { makePlanFile } from './plan-document.ts';
import { checkPlan, readPlanFile, withPlan } from './plan-options.ts';
import type { PlanFile } from './plan-schema.ts';

const NANO = fileURLToPath(new URL('../../models/nano', import.meta.url));
const OTHER = fileURLToPath(new URL('../../test/oracles/olmoe', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'coli-plan-'));
afterAll(() => rmSync(folder, { recursive: true }));

const OPTIONS: EngineOptions = {
  model: NANO,
  ram: 700 * MIB,
  context: 300,
  threads: 1,
  slots: 2,
  expertSlots: 50,
  chunk: 32,
  readers: 2,
};
let plan: PlanFile;
beforeAll(async () => {
  plan = await makePlanFile({ options: OPTIONS, colibri: '0', measure: 'none' });
});

function saved(value: unknown): string {
  const path = join(folder, 'plan.json');
  writeFileSync(path, typeof value === 'string' ? value : JSON.stringify(value));
  return path;
}

function refusal(run: () => unknown): ColiError {
  try {
    run();
  } catch (error) {
    return error as ColiError;
  }
  throw new Error('nothing was refused');
}

describe('a plan that is obeyed', () => {
  test('everything that it decides is as it says', () => {
    const info = inspectModel({ model: NANO, plan: saved(plan) });
    expect(info).toMatchObject({ context: 300, threads: 1, slots: 2, readers: 2 });
    expect(info.plan).toMatchObject({ expertSlots: 50, chunkTokens: 32, total: plan.memory.total_bytes });
    expect(info.plan.budgetSource).toBe(`the plan of ${plan.created}`);
  });

  test('an engine is opened by it, and answers as one that was opened by flags', async () => {
    const answers: string[] = [];
    for (const options of [{ model: NANO, plan: saved(plan) }, OPTIONS]) {
      const engine = await openEngine(options);
      const request = { prompt: { text: 'The cat' }, maxTokens: 6, temperature: 0 };
      for await (const event of engine.generate(request)) if (event.type === 'end') answers.push(event.text);
      expect(engine.info).toMatchObject({ slots: 2, plan: { expertSlots: 50 } });
      await engine.close();
    }
    expect(answers[0]).toBe(answers[1]);
  });

  test('flags that say the same are no contradiction', () => {
    expect(withPlan({ ...OPTIONS, plan })).toMatchObject(OPTIONS);
  });

  test('without a plan nothing is changed', () => {
    expect(withPlan(OPTIONS)).toBe(OPTIONS);
  });
});

describe('a plan that is refused', () => {
  test.each<[keyof EngineOptions, unknown, string, string]>([
    ['ram', 'auto', '--ram', 'memory.budget_bytes'],
    ['ram', 800 * MIB, '--ram', 'memory.budget_bytes'],
    ['threads', 2, '--threads', 'settings.threads'],
    ['context', 301, '--ctx', 'settings.context'],
    ['expertSlots', 51, '--expert-slots', 'settings.expert_slots'],
    ['expertShare', 0.5, '--expert-slots', 'settings.expert_slots'],
    ['slots', 1, '--slots', 'settings.sessions'],
    ['chunk', 16, '--chunk', 'settings.chunk_tokens'],
    ['readers', 4, '--readers', 'settings.readers'],
    ['kv', 'bf16', '--kv', 'settings.kv'],
    ['activations', 'exact', '--activations', 'settings.activations'],
  ])('%s %s contradicts it', (option, value, flag, field) => {
    const error = refusal(() => withPlan({ model: NANO, plan, [option]: value }));
    // exit code 2
    expect(error).toBeInstanceOf(UsageError);
    expect(error.code).toBe('PLAN_CONFLICT');
    const typed = value === 800 * MIB ? '800M' : value === 0.5 ? '50%' : value;
    expect(error.message).toContain(`${flag} ${typed} contradicts the plan, whose ${field} is`);
    if (flag === '--ram') expect(error.message).toMatch(/ is 700M$/);
    expect(error.details).toMatchObject({ flag, path: field });
  });

  test('of another model', () => {
    const { code, details, hint } = refusal(() => inspectModel({ model: OTHER, plan: saved(plan) }));
    expect(code).toBe('PLAN_OTHER_MODEL');
    expect(details['path']).toBe('model.identity');
    expect(hint).toContain(OTHER);
  });

  test('for what needs more than it has', () => {
    const more = { model: NANO, plan: saved(plan), reserveBytes: 10 * MIB };
    const { code, hint } = refusal(() => inspectModel(more));
    // its budget has room, but what it says is what may be taken
    expect(code).toBe('PLAN_OUTGROWN');
    expect(hint).toBe('make it again with coli plan --out FILE, with --serve');
  });

  test('for what needs more than its budget, of which --ram could only contradict the plan', () => {
    const { code, hint } = refusal(() => inspectModel({ model: NANO, plan: saved(plan), reserveBytes: 900 * MIB }));
    expect(code).toBe('PLAN_OUTGROWN');
    expect(hint).toMatch(/^make it again with coli plan --out FILE, with --serve and --ram \d+M or more$/);
    // as one of an older build, which counted less
    const tight = plan.memory.smallest_budget_bytes - 20 * MIB;
    const older = { ...plan, memory: { ...plan.memory, budget_bytes: tight, total_bytes: tight } };
    const error = refusal(() => inspectModel({ model: NANO, plan: saved(older) }));
    expect(error.code).toBe('PLAN_OUTGROWN');
    expect(error.message).toMatch(/the version \(0\) that it was made with$/);
    expect(error.hint).toMatch(/^make it again with coli plan --out FILE, with --ram \d+M or more$/);
  });

  test('where it does not fit any more', () => {
    const planned = planModel(readModel({ model: NANO }), OPTIONS);
    const free = plan.memory.total_bytes;
    checkPlan(plan, planned, { availableBytes: free, cgroupLeftBytes: null });
    for (const facts of [
      { availableBytes: free - 1, cgroupLeftBytes: null },
      { availableBytes: free, cgroupLeftBytes: free - 1 },
    ]) {
      const { code, details } = refusal(() => checkPlan(plan, planned, facts));
      expect(code).toBe('PLAN_DOES_NOT_FIT');
      expect(details).toMatchObject({ path: 'memory.total_bytes', planned: free, available: free - 1 });
    }
  });

  test.each<[string, string, string, (plan: PlanFile) => unknown]>([
    ['a newer one', 'PLAN_VERSION', 'version', p => ({ ...p, version: 2 })],
    ['an older one', 'PLAN_VERSION', 'version', p => ({ ...p, version: 0 })],
    ['a version that is no number', 'PLAN_INVALID', 'version', p => ({ ...p, version: '1' })],
    ['no version', 'PLAN_INVALID', 'version', ({ version: _, ...p }) => p],
    ['no settings', 'PLAN_INVALID', 'settings', ({ settings: _, ...p }) => p],
    [
      'no expert slots',
      'PLAN_INVALID',
      'settings.expert_slots',
      p => ({ ...p, settings: { ...p.settings, expert_slots: 0 } }),
    ],
    ['half a thread', 'PLAN_INVALID', 'settings.threads', p => ({ ...p, settings: { ...p.settings, threads: 1.5 } })],
    [
      'a budget below nothing',
      'PLAN_INVALID',
      'memory.budget_bytes',
      p => ({ ...p, memory: { ...p.memory, budget_bytes: -1 } }),
    ],
    [
      'an identity of another form',
      'PLAN_INVALID',
      'model.identity',
      p => ({ ...p, model: { ...p.model, identity: 'x' } }),
    ],
    [
      'a warning without a code',
      'PLAN_INVALID',
      'warnings.0.code',
      p => ({ ...p, warnings: [{ message: '', hint: '' }] }),
    ],
  ])('with %s', (_, code, field, change) => {
    const error = refusal(() => readPlanFile(saved(change(plan))));
    expect(error.code).toBe(code);
    expect(error.details['path']).toBe(field);
    expect(error.message).toContain(join(folder, 'plan.json'));
    // and the same as an object
    expect(refusal(() => withPlan({ model: NANO, plan: change(plan) as PlanFile })).code).toBe(code);
  });

  test.each<[string, string]>([
    ['nothing', ''],
    ['no JSON', '{"version": 1,'],
    ['a list', '[1]'],
    ['one field twice', '{"version": 1, "version": 1}'],
    ['nesting without end', '['.repeat(100_000)],
    ['more than any plan', ' '.repeat(5 * MIB)],
  ])('that is %s', (_, text) => {
    expect(refusal(() => readPlanFile(saved(text))).code).toBe('PLAN_UNREADABLE');
  });

  test('that is not there', () => {
    expect(refusal(() => readPlanFile(join(folder, 'none'))).code).toBe('PLAN_UNREADABLE');
  });

  test('before an engine has loaded anything', async () => {
    await expect(openEngine({ model: OTHER, plan: saved(plan) })).rejects.toMatchObject({ code: 'PLAN_OTHER_MODEL' });
  });
});
