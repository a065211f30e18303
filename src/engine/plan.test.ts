import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { PlanError, RequestError } from '../common/errors.ts';
import { MIB } from '../common/units.ts';
import { Arenas } from '../compute/arenas.ts';
import { affordableLanes, type OverheadFacts, overheadBytes } from './overhead.ts';
import { makePlan, type PlanInput } from './plan.ts';

const SLOT = 256 * 1024;

/** A model of 20 MiB weights, 10 MiB KV and 64 KiB of activations for each row, copied into every arena. */
const build =
  (capacity?: number, weights = 20 * MIB) =>
  (chunk: number) => {
    const arenas = new Arenas(capacity);
    arenas.tensor(chunk, 16 * 1024, { replicated: true });
    for (let left = weights; left > 0; left -= MIB) arenas.place(MIB, 'resident');
    for (let layer = 0; layer < 10; layer++) arenas.place(MIB, 'kv');
    return { arenas };
  };

function input(budgetBytes: number, more: Partial<PlanInput> = {}): PlanInput {
  return {
    budgetBytes,
    budgetSource: 'test',
    overhead: 100 * MIB,
    slotBytes: SLOT,
    minSlots: 4,
    maxSlots: 1000,
    expertSlots: undefined,
    expertShare: 1,
    chunk: undefined,
    context: 4096,
    slots: 1,
    lanes: 2,
    ...more,
  };
}

function refusal(run: () => unknown): PlanError {
  try {
    run();
  } catch (error) {
    if (error instanceof PlanError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

/** Places the slots as the runtime does and returns what the process then holds. */
function placedBytes({ built, slotCount }: ReturnType<typeof makePlan<{ arenas: Arenas }>>, overhead: number): number {
  for (let i = 0; i < slotCount; i++) built.arenas.place(SLOT, 'slots');
  return built.arenas.totalBytes + overhead;
}

describe('the budget', () => {
  test('the summary adds up and is what is placed', () => {
    const plan = makePlan(input(400 * MIB), build());
    const { summary } = plan;
    const { resident, kv, scratch, overhead, slots, total } = summary;
    expect(resident).toBe(20 * MIB);
    expect(kv).toBe(10 * MIB);
    expect(slots).toBe(plan.slotCount * SLOT);
    expect(summary.expertSlots).toBe(plan.slotCount);
    // the first page of each arena belongs to nobody
    expect(total - (resident + kv + scratch + overhead + slots)).toBe(65536 * plan.built.arenas.count);
    expect(placedBytes(plan, overhead)).toBe(total);
    expect(total).toBeLessThanOrEqual(400 * MIB);
    expect(total).toBeGreaterThan(400 * MIB - SLOT);
  });

  test('a roomy budget holds every expert and the largest chunk', () => {
    const { summary } = makePlan(input(8192 * MIB), build());
    expect(summary.expertSlots).toBe(1000);
    expect(summary.chunkTokens).toBe(512);
    expect(summary.total).toBeLessThan(1024 * MIB);
  });

  test('a refusal tells what only a first start needs', () => {
    const first = (firstStartBytes: number) => refusal(() => makePlan(input(100 * MIB, { firstStartBytes }), build()));
    expect(first(90 * MIB).message).toContain('runtime 105 MB (94.4 MB of it only for a first start from source) + 4');
    expect(first(0).message).not.toContain('first start');
    // only where a later start would keep the budget
    const least = first(0).details.smallestBudget as number;
    const refused = (budget: number) =>
      refusal(() => makePlan(input(budget, { firstStartBytes: 20 * MIB }), build())).hint;
    expect(refused(least - 20 * MIB)).toContain(`; after one start with that, --ram ${least / MIB - 20}M is enough`);
    expect(refused(least - 21 * MIB)).not.toContain('after one start');
  });

  test('the smallest budget works, one byte less is refused with the numbers', () => {
    const { message, code, details, hint } = refusal(() => makePlan(input(100 * MIB), build()));
    expect(code).toBe('RAM_TOO_SMALL');
    const smallest = details.smallestBudget as number;
    expect(smallest % MIB).toBe(0);
    for (const word of [
      '105 MB',
      'resident weights 21.0 MB',
      'KV for 4096 tokens 10.5 MB',
      'runtime 105 MB',
      '4 expert',
    ])
      expect(message).toContain(word);
    expect(hint).toContain(`--ram ${smallest / MIB}M`);
    expect(message).not.toContain(`${smallest / MIB}M`);

    const plan = makePlan(input(smallest), build());
    expect(plan.slotCount).toBeGreaterThanOrEqual(4);
    expect(placedBytes(plan, 100 * MIB)).toBeLessThanOrEqual(smallest);
    refusal(() => makePlan(input(smallest - MIB), build()));
    const exact = plan.summary.smallestBudget;
    expect(makePlan(input(exact), build()).summary).toMatchObject({ chunkTokens: 1, expertSlots: 4 });
    refusal(() => makePlan(input(exact - 1), build()));
  });

  test('every plan names the same smallest budget', () => {
    const named = [131, 140, 200, 400, 8000].map(
      mib => makePlan(input(mib * MIB + 512 * 1024), build()).summary.smallestBudget,
    );
    expect(new Set(named).size).toBe(1);
  });

  test('what is placed never exceeds the budget, with any sizes of budget and arena', () => {
    const sizes = fc.record({
      budget: fc.integer({ min: 131, max: 700 }),
      capacity: fc.integer({ min: 12, max: 256 }),
      weights: fc.integer({ min: 1, max: 60 }),
      expertSlots: fc.option(fc.integer({ min: 4, max: 1200 }), { nil: undefined }),
    });
    let placed = 0;
    fc.assert(
      fc.property(sizes, ({ budget, capacity, weights, expertSlots }) => {
        const make = build(capacity * MIB, weights * MIB);
        const request = input(budget * MIB, { expertSlots });
        try {
          const plan = makePlan(request, make);
          expect(placedBytes(plan, request.overhead)).toBe(plan.summary.total);
          expect(plan.summary.total).toBeLessThanOrEqual(request.budgetBytes);
          placed++;
          if (expertSlots === undefined && plan.slotCount < request.maxSlots) {
            // not one more would have fitted
            plan.built.arenas.place(SLOT, 'slots');
            expect(plan.built.arenas.totalBytes + request.overhead).toBeGreaterThan(request.budgetBytes);
          }
        } catch (error) {
          if (!(error instanceof PlanError && error.code === 'RAM_TOO_SMALL')) throw error;
        }
      }),
      { numRuns: 200, seed: 11 },
    );
    expect(placed).toBeGreaterThan(100);
  });
});

describe('the chunk', () => {
  test('shrinks with what the fixed parts leave', () => {
    const chunks = [132, 140, 160, 200, 300, 600].map(mib => makePlan(input(mib * MIB), build()).summary.chunkTokens);
    expect([...chunks].sort((a, b) => a - b)).toEqual(chunks);
    expect(chunks[0]).toBeLessThan(64);
    expect(chunks.at(-1)).toBe(512);
  });

  test('shrinks when its activations do not fit one memory', () => {
    // 64 KiB a row: 128 rows and the first page are more than 8 MiB
    expect(makePlan(input(900 * MIB), build(8 * MIB)).summary.chunkTokens).toBe(64);
    expect(() => makePlan(input(900 * MIB, { chunk: 128 }), build(8 * MIB))).toThrow(/do not fit one memory/);
  });

  test('is never longer than the context', () => {
    expect(makePlan(input(900 * MIB, { context: 100 }), build()).summary.chunkTokens).toBe(64);
    expect(makePlan(input(900 * MIB, { context: 1 }), build()).summary.chunkTokens).toBe(1);
    expect(makePlan(input(900 * MIB, { context: 100, chunk: 4000 }), build()).summary.chunkTokens).toBe(100);
  });

  test('is taken as given, or refused', () => {
    expect(makePlan(input(900 * MIB, { chunk: 7 }), build()).summary.chunkTokens).toBe(7);
    const { details } = refusal(() => makePlan(input(140 * MIB, { chunk: 512 }), build()));
    expect(details.smallestBudget).toBeGreaterThan(160 * MIB);
  });
});

describe('--expert-slots', () => {
  test('is the total over all layers', () => {
    const { slotCount, summary, notes } = makePlan(input(900 * MIB, { expertSlots: 37 }), build());
    expect(slotCount).toBe(37);
    expect(summary.slots).toBe(37 * SLOT);
    expect(notes).toEqual([]);
  });

  test('a share is that of what would fit, and never less than a token needs', () => {
    const slots = (expertShare: number) => makePlan(input(300 * MIB, { expertShare }), build()).slotCount;
    expect(slots(0.5)).toBe(Math.floor(slots(1) / 2));
    expect(slots(0.0001)).toBe(4);
  });

  test('below top-k is refused', () => {
    const run = () => makePlan(input(900 * MIB, { expertSlots: 3 }), build());
    expect(run).toThrow(RequestError);
    expect(run).toThrow(/--expert-slots 3: a token needs 4/);
    expect(makePlan(input(900 * MIB, { expertSlots: 4 }), build()).slotCount).toBe(4);
  });

  test('above all experts is clamped with one line', () => {
    const { slotCount, notes } = makePlan(input(900 * MIB, { expertSlots: 1001 }), build());
    expect(slotCount).toBe(1000);
    expect(notes).toEqual(['--expert-slots 1001 is more than all 1000 experts; using 1000']);
    expect(makePlan(input(900 * MIB, { expertSlots: 1000 }), build()).notes).toEqual([]);
  });

  test('more than the budget holds is refused, not reduced', () => {
    const { message, details } = refusal(() => makePlan(input(200 * MIB, { expertSlots: 800 }), build()));
    expect(message).toContain('800 expert slots 210 MB');
    const smallest = details.smallestBudget as number;
    expect(makePlan(input(smallest, { expertSlots: 800 }), build()).slotCount).toBe(800);
  });
});

test('the overhead grows with everything that costs memory', () => {
  const facts: OverheadFacts = {
    lanes: 1,
    readers: 1,
    tokenizerBytes: 0,
    tensors: 0,
    experts: 0,
    expertParts: 0,
    routingBytes: 0,
    context: 1,
    slots: 1,
    vocabSize: 1,
    strips: false,
  };
  const base = overheadBytes(facts);
  expect(base).toBeGreaterThan(100 * MIB);
  const more: Partial<OverheadFacts>[] = [
    { lanes: 2 },
    { readers: 2 },
    { tokenizerBytes: 1e6 },
    { tensors: 1e4 },
    { experts: 1e4 },
    { expertParts: 1e4 },
    { routingBytes: 2e6 },
    { context: 4096 },
    { context: 1024, slots: 4 },
    { vocabSize: 1e5 },
    { strips: true },
  ];
  for (const change of more)
    expect(overheadBytes({ ...facts, ...change }), JSON.stringify(change)).toBeGreaterThan(base + 1e6);
  const workers = overheadBytes({ ...facts, lanes: 3, readers: 4 }) - base;
  expect(
    overheadBytes({ ...facts, lanes: 3, readers: 4, strips: true }) - overheadBytes({ ...facts, strips: true }),
  ).toBeGreaterThan(workers);
});

test('lanes that nobody asked for are few when memory is', () => {
  expect(affordableLanes(64, 400 * MIB)).toBe(4);
  expect(affordableLanes(2, 400 * MIB)).toBe(2);
  expect(affordableLanes(64, 0)).toBe(1);
  expect(affordableLanes(64, 16_000 * MIB)).toBe(64);
});
