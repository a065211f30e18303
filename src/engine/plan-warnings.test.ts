import { fileURLToPath } from 'node:url';
import { beforeAll, describe, expect, test } from 'vitest';
import { nextStep, unmeasured } from './plan-advice.ts';
import type { Budget } from './plan-budget.ts';
import { makePlanFile } from './plan-document.ts';
import type { PlanFile } from './plan-schema.ts';
import { contextNote, planWarnings } from './plan-warnings.ts';

const NANO = fileURLToPath(new URL('../../models/nano', import.meta.url));

let plain: PlanFile;
beforeAll(async () => {
  const made = await makePlanFile({ options: { model: NANO, ram: 2 ** 30 }, colibri: '0', measure: 'none' });
  plain = {
    ...made,
    machine: { ...made.machine, available_bytes: 2 ** 34, cgroup_left_bytes: null, direct_io: true, logical_cpus: 8 },
  };
});

type Deep<T> = { [K in keyof T]?: T[K] extends object | null ? Deep<T[K]> | null : T[K] };

function changed(change: Deep<PlanFile>): PlanFile {
  const merged: Record<string, unknown> = { ...plain };
  for (const [key, value] of Object.entries(change)) {
    const isPart = typeof value === 'object' && value !== null && !Array.isArray(value);
    merged[key] = isPart ? { ...(plain[key as keyof PlanFile] as object), ...value } : value;
  }
  return merged as PlanFile;
}

/** As if planning anew had found it. */
const budgetFor = (slots: number): Budget => ({ bytes: slots * 2 ** 24, flags: `--ram ${slots * 16}M` });

function codes(change: Deep<PlanFile> = {}, { automatic = false } = {}): string[] {
  return planWarnings({ plan: changed(change), automatic, budgetFor }).map(({ code }) => code);
}

const speed = (bytes_per_second: number) => ({ bytes_per_second, median_read_us: 1, p99_read_us: 2 });
const disk = (direct: number | null, buffered: number) => ({
  disk: {
    direct: direct === null ? null : speed(direct),
    buffered: speed(buffered),
    record_bytes: 1,
    depth: 4,
    measured: '',
    fresh: true,
  },
});
/** 24 experts for each token, and not all fit. */
const some = (slots: number) => ({ experts: { slots, total: 192, share: slots / 192, slots_per_token: 24 } });

describe('warnings', () => {
  test('a plan with room for everything has none', () => expect(codes()).toEqual([]));

  test.each<[string, string[], Deep<PlanFile>]>([
    ['more than is available', ['RAM_ABOVE_AVAILABLE'], { machine: { available_bytes: 2 ** 20 } }],
    ['more than a control group leaves', ['RAM_ABOVE_AVAILABLE'], { machine: { cgroup_left_bytes: 2 ** 20 } }],
    ['less than one token needs', ['FEWER_SLOTS_THAN_LAYER_TOPK_RATIO'], some(23)],
    ['less than two tokens need', ['RAM_BELOW_RECOMMENDED'], some(24)],
    ['what two tokens need', [], some(48)],
    ['a slow disk', ['DISK_SLOW'], { ...some(48), ceilings: disk(4e8, 9e9) }],
    ['a slow disk that nothing is read from', [], { ceilings: disk(4e8, 4e8) }],
    ['a fast disk', [], { ...some(48), ceilings: disk(6e8, 1e6) }],
    [
      'reads through the page cache, with room for it',
      ['NO_DIRECT_IO'],
      { ...some(48), machine: { direct_io: false } },
    ],
    [
      'reads through the page cache, without',
      ['NO_DIRECT_IO', 'PAGE_CACHE_STARVED'],
      { ...some(48), machine: { direct_io: false, available_bytes: 1 }, memory: { total_bytes: 1 } },
    ],
    ['short passes', ['SHORT_CHUNK'], { ...some(48), settings: { chunk_tokens: 63 } }],
    ['short passes with every expert in memory', [], { settings: { chunk_tokens: 8 } }],
    ['a context as short as its passes', [], { ...some(48), settings: { chunk_tokens: 8, context: 8 } }],
  ])('%s', (_, expected, change) => {
    expect(codes(change)).toEqual(expected);
  });

  test('a control group that decides an automatic budget', () => {
    const tight = { machine: { cgroup_left_bytes: 2 ** 33 } };
    expect(codes(tight, { automatic: true })).toEqual(['CGROUP_LIMIT']);
    expect(codes(tight)).toEqual([]);
  });

  test('a context that is not all is told, and is nothing to be warned of', () => {
    const cut = { settings: { context: 512 } };
    expect(codes(cut)).toEqual([]);
    expect(contextNote(changed(cut))).toMatch(
      /^CONTEXT_CUT: the context is 512 of the \d+ tokens that the model takes/,
    );
    expect(contextNote(changed({ settings: { context: plain.model.max_context } }))).toBeNull();
  });

  test('a budget that is recommended is one that was tried', () => {
    const [{ hint }] = planWarnings({ plan: changed(some(24)), automatic: false, budgetFor });
    expect(hint).toContain(`give --ram ${48 * 16}M or more`);
    const [unknown] = planWarnings({ plan: changed(some(24)), automatic: false, budgetFor: () => null });
    expect(unknown.hint).toContain('give more --ram, or');
  });

  test('passes of one token are told in the singular', () => {
    const [{ message }] = planWarnings({
      plan: changed({ ...some(48), settings: { chunk_tokens: 1 } }),
      automatic: false,
      budgetFor,
    });
    expect(message).toContain('computed one token at a time');
  });

  test('every one has a next step', () => {
    for (const { message, hint } of planWarnings({
      plan: changed({ ...some(10), machine: { direct_io: false, available_bytes: 1 } }),
      automatic: true,
      budgetFor,
    })) {
      expect(message).not.toBe('');
      expect(hint).not.toBe('');
    }
  });
});

describe('the next step', () => {
  const limited = (limited_by: 'disk' | 'memory' | 'compute' | 'latency') => ({
    ...some(48),
    prediction: {
      decode_tokens_per_second: { low: 1, high: 2 },
      decode_likely_tokens_per_second: 1.5,
      limited_by,
      seconds_per_token: { disk: 1, memory: 0, compute: 0, latency: 0 },
      prefill_tokens_per_second: 1,
      prompt_tokens: 1,
      prompt_seconds: 1,
      prefill_limited_by: 'disk' as const,
    },
  });

  test.each<[string, RegExp | null, Deep<PlanFile>]>([
    ['nothing measured', /^coli plan --measure: neither the disk .* nor the processor .* has been measured/, {}],
    ['room for every expert', /^--ram 3072M: every expert then stays in memory/, limited('disk')],
    [
      'no room, and large weights',
      /^coli convert: experts of 4 bits are 3.8 times smaller/,
      {
        ...limited('disk'),
        machine: { available_bytes: 1 },
        traffic: { expert_disk_bytes_per_token: 2000, expert_weights_per_token: 1000 },
      },
    ],
    [
      'no room, and small weights',
      /^more memory: .* or a faster disk/,
      { ...limited('disk'), machine: { available_bytes: 1 } },
    ],
    ['idle threads', /^--threads 8: arithmetic takes longest/, { ...limited('compute'), settings: { threads: 2 } }],
    ['all threads busy', null, { ...limited('compute'), settings: { threads: 8 } }],
    ['memory as fast as it is', null, limited('memory')],
  ])('%s', (_, expected, change) => {
    const step = nextStep({ ...changed(change), warnings: [] }, budgetFor);
    if (expected === null) expect(step).toBeNull();
    else expect(step).toMatch(expected);
  });

  test('what was not measured is named with its setting', () => {
    const settings = { settings: { readers: 3, threads: 1 } };
    const compute = { job_us: 1, layouts: {}, measured: '', fresh: true };
    expect(unmeasured(changed({ ...settings, ceilings: { disk: null, compute } }))).toBe(
      'the disk with 3 reads at a time has not been measured',
    );
    expect(unmeasured(changed({ ...settings, ceilings: { ...disk(1, 1), compute: null } }))).toMatch(
      /^the processor with .* and 1 thread has not been measured$/,
    );
  });
});
