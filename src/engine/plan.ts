/**
 * The plan: what every byte of the process is for, decided before anything is allocated. Fixed parts (resident weights, KV,
 * activations, overhead) come first; experts get the rest as slots. The engine obeys it and never grows.
 */

import { PlanError, RequestError } from '../common/errors.ts';
import { formatBytes, MIB, sizeFlag } from '../common/units.ts';
import type { Arenas } from '../compute/arenas.ts';
import type { PlanSummary } from './api.ts';

/** Prompt tokens per pass, from the one tried first. */
const CHUNKS = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1];
/** Activations may take this share of what weights, KV and overhead leave; beyond it the chunk is made smaller. */
const MAX_SCRATCH_SHARE = 0.25;

export interface PlanInput {
  readonly budgetBytes: number;
  readonly budgetSource: string;
  readonly overhead: number;
  /** Part of `overhead` that later starts do not need: see stripperBytes. */
  readonly firstStartBytes?: number;
  readonly slotBytes: number;
  /** Experts of one token of one layer: fewer slots cannot work. */
  readonly minSlots: number;
  /** All experts of all layers: more slots are of no use. */
  readonly maxSlots: number;
  readonly expertSlots: number | undefined;
  /** Of the slots that fit. */
  readonly expertShare: number;
  readonly chunk: number | undefined;
  readonly context: number;
  readonly slots: number;
  readonly lanes: number;
}

/** What one way of building the model needs, slots excluded. */
export interface Built {
  readonly arenas: Arenas;
}

export interface Planned<B extends Built> {
  readonly summary: PlanSummary;
  readonly built: B;
  readonly slotCount: number;
  readonly notes: string[];
}

/** Chooses the chunk and the number of slots. `build(chunk)` reserves everything but the slots. Throws PlanError RAM_TOO_SMALL. */
export function makePlan<B extends Built>(input: PlanInput, build: (chunk: number) => B): Planned<B> {
  const notes: string[] = [];
  const wanted = clampSlots(input, notes);
  const leastSlots = wanted ?? input.minSlots;
  const leastBytes = ({ arenas }: B) =>
    arenas.totalBytes + input.overhead + spaceForSlots(arenas, input.slotBytes, leastSlots);
  const chunks = chunkCandidates(input);
  let chunk = chunks.at(-1)!;
  let built = build(chunk);
  const smallest = leastBytes(built);
  if (smallest > input.budgetBytes) throw tooSmall(input, built.arenas, leastSlots, smallest);
  for (const larger of chunks.slice(0, -1)) {
    const candidate = unlessArenaFull(() => build(larger));
    if (candidate === null || leastBytes(candidate) > input.budgetBytes || tooMuchScratch(candidate.arenas, input))
      continue;
    chunk = larger;
    built = candidate;
    break;
  }
  const slotCount = wanted ?? Math.max(input.minSlots, Math.floor(fitSlots(built.arenas, input) * input.expertShare));
  return { built, slotCount, notes, summary: summarise(input, built.arenas, slotCount, chunk, smallest) };
}

/** Activations of a chunk must share one memory; a smaller chunk then has a chance. */
function unlessArenaFull<T>(build: () => T): T | null {
  try {
    return build();
  } catch (error) {
    if (error instanceof PlanError && error.code === 'ARENA_FULL') return null;
    throw error;
  }
}

function tooMuchScratch({ bytesByPurpose: { scratch, resident, kv } }: Arenas, input: PlanInput): boolean {
  return scratch > (input.budgetBytes - input.overhead - resident - kv) * MAX_SCRATCH_SHARE;
}

function chunkCandidates({ chunk, context }: PlanInput): number[] {
  if (chunk !== undefined) return [Math.min(chunk, context)];
  const fitting = CHUNKS.filter(c => c <= context);
  return fitting.length > 0 ? fitting : [1];
}

function clampSlots({ expertSlots, minSlots, maxSlots }: PlanInput, notes: string[]): number | undefined {
  if (expertSlots === undefined) return undefined;
  if (expertSlots < minSlots) {
    throw new RequestError('TOO_FEW_EXPERT_SLOTS', `--expert-slots ${expertSlots}: a token needs ${minSlots} at once`, {
      hint: `give at least ${minSlots}`,
      details: { expertSlots, minSlots },
    });
  }
  if (expertSlots > maxSlots)
    notes.push(`--expert-slots ${expertSlots} is more than all ${maxSlots} experts; using ${maxSlots}`);
  return Math.min(expertSlots, maxSlots);
}

/** Bytes that `slots` take, counting the copies of activations in every arena they open. */
function spaceForSlots(arenas: Arenas, slotBytes: number, slots: number): number {
  let left = slots;
  let bytes = slots * slotBytes;
  for (let arena = 0; arena < arenas.count; arena++) left -= Math.floor(arenas.roomIn(arena) / slotBytes);
  const perArena = Math.max(1, Math.floor(arenas.freshArenaRoom / slotBytes));
  const opened = Math.max(0, Math.ceil(left / perArena));
  bytes += opened * (arenas.capacityBytes - arenas.freshArenaRoom);
  return bytes;
}

function fitSlots(arenas: Arenas, { slotBytes, maxSlots, budgetBytes, overhead }: PlanInput): number {
  const bytes = budgetBytes - overhead - arenas.totalBytes;
  let slots = Math.min(maxSlots, Math.floor(bytes / slotBytes));
  while (spaceForSlots(arenas, slotBytes, slots) > bytes) slots--;
  return slots;
}

function summarise(input: PlanInput, arenas: Arenas, slots: number, chunk: number, smallest: number): PlanSummary {
  const slotSpace = spaceForSlots(arenas, input.slotBytes, slots);
  return {
    budget: input.budgetBytes,
    budgetSource: input.budgetSource,
    total: arenas.totalBytes + input.overhead + slotSpace,
    smallestBudget: smallest,
    resident: arenas.bytesByPurpose.resident,
    kv: arenas.bytesByPurpose.kv,
    scratch: arenas.bytesByPurpose.scratch + slotSpace - slots * input.slotBytes,
    overhead: input.overhead,
    slots: slots * input.slotBytes,
    slotBytes: input.slotBytes,
    expertSlots: slots,
    chunkTokens: chunk,
  };
}

/** The flags that a smaller budget could do with, as the subject and verb of a sentence. */
function lessMemory({ lanes, slots }: PlanInput): string {
  const fewer = [...(slots > 1 ? ['fewer --slots'] : []), ...(lanes > 1 ? ['fewer --threads'] : [])];
  return fewer.length === 0 ? 'a smaller --ctx needs' : `a smaller --ctx or ${fewer.join(' or ')} need`;
}

/** The ceiling holds for every start, so a first one from source is refused; but it is told when it is the only one that would be. */
function laterStarts({ firstStartBytes = 0, budgetBytes }: PlanInput, smallest: number): string {
  const later = smallest - firstStartBytes;
  return later > budgetBytes ? '' : `; after one start with that, --ram ${sizeFlag(later)} is enough`;
}

function tooSmall(input: PlanInput, arenas: Arenas, slots: number, smallest: number): PlanError {
  const { resident, kv, scratch } = arenas.bytesByPurpose;
  const first = input.firstStartBytes ?? 0;
  const onlyNow = first === 0 ? '' : ` (${formatBytes(first)} of it only for a first start from source)`;
  const need =
    `resident weights ${formatBytes(resident)} + KV for ${input.slots > 1 ? `${input.slots} x ` : ''}${input.context} tokens ${formatBytes(kv)} + activations ` +
    `${formatBytes(scratch)} + runtime ${formatBytes(input.overhead)}${onlyNow} + ${slots} expert slots ` +
    `${formatBytes(slots * input.slotBytes)}`;
  return new PlanError(
    'RAM_TOO_SMALL',
    `the budget of ${formatBytes(input.budgetBytes)} (${input.budgetSource}) is too small: ${need}, together ${formatBytes(smallest)}`,
    {
      hint: `the smallest possible is --ram ${sizeFlag(smallest)}; ${lessMemory(input)} less${laterStarts(input, smallest)}`,
      details: {
        budget: input.budgetBytes,
        smallestBudget: Math.ceil(smallest / MIB) * MIB,
        resident,
        kv,
        scratch,
        overhead: input.overhead,
      },
    },
  );
}
