/**
 * The plan: what every byte of the process is for, decided before anything is allocated. Fixed parts (resident weights, KV,
 * activations, overhead) come first; experts get the rest as slots. The engine obeys it and never grows.
 */

import { PlanError, RequestError } from '../common/errors.ts';
import { formatBytes, MIB } from '../common/units.ts';
import type { Arenas } from '../compute/arenas.ts';
import type { PlanSummary } from './api.ts';

/**
 * What this Node needs besides the arenas, measured with bench/overhead.ts (figures in docs/benchmarks.md): main thread,
 * engine worker and text worker; each further lane and reader; the tokenizer's heap per byte of tokenizer.json; the tensor
 * table per tensor.
 */
export const BASE_OVERHEAD_BYTES = 170 * MIB;
export const LANE_OVERHEAD_BYTES = 10 * MIB;
export const READER_OVERHEAD_BYTES = 8 * MIB;
export const TOKENIZER_HEAP_PER_BYTE = 30;
export const HEAP_PER_TENSOR_BYTES = 3072;

/** Prompt tokens per pass, from the one tried first. */
const CHUNKS = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1];
/** Activations may take this share of the budget before the chunk is made smaller. */
const MAX_SCRATCH_SHARE = 0.2;

export interface OverheadFacts {
  readonly lanes: number;
  readonly readers: number;
  readonly tokenizerBytes: number;
  readonly tensors: number;
}

export function overheadBytes({ lanes, readers, tokenizerBytes, tensors }: OverheadFacts): number {
  return (
    BASE_OVERHEAD_BYTES +
    (lanes - 1) * LANE_OVERHEAD_BYTES +
    readers * READER_OVERHEAD_BYTES +
    tokenizerBytes * TOKENIZER_HEAP_PER_BYTE +
    tensors * HEAP_PER_TENSOR_BYTES
  );
}

export interface PlanInput {
  readonly budgetBytes: number;
  readonly budgetSource: string;
  readonly overhead: number;
  readonly slotBytes: number;
  /** Experts of one token of one layer: fewer slots cannot work. */
  readonly minSlots: number;
  /** All experts of all layers: more slots are of no use. */
  readonly maxSlots: number;
  readonly expertSlots: number | undefined;
  readonly chunk: number | undefined;
  readonly context: number;
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
  const candidates = chunkCandidates(input);
  let smallest = Number.POSITIVE_INFINITY;
  for (let i = 0; i < candidates.length; i++) {
    const chunk = candidates[i];
    const built = build(chunk);
    const fixed = built.arenas.totalBytes + input.overhead;
    const least = fixed + spaceForSlots(built.arenas, input.slotBytes, wanted ?? input.minSlots);
    smallest = Math.min(smallest, least);
    const last = i === candidates.length - 1;
    const tooMuchScratch = built.arenas.bytesByPurpose.scratch > input.budgetBytes * MAX_SCRATCH_SHARE;
    if (least > input.budgetBytes || (tooMuchScratch && !last)) continue;
    const slotCount = wanted ?? fitSlots(built.arenas, input, input.budgetBytes - fixed);
    return { built, slotCount, notes, summary: summarise(input, built.arenas, slotCount, chunk, smallest) };
  }
  throw tooSmall(input, build(candidates.at(-1)!).arenas, wanted ?? input.minSlots, smallest);
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

function fitSlots(arenas: Arenas, { slotBytes, maxSlots }: PlanInput, bytes: number): number {
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

function tooSmall(input: PlanInput, arenas: Arenas, slots: number, smallest: number): PlanError {
  const { resident, kv, scratch } = arenas.bytesByPurpose;
  const need =
    `resident weights ${formatBytes(resident)} + KV for ${input.context} tokens ${formatBytes(kv)} + activations ` +
    `${formatBytes(scratch)} + runtime ${formatBytes(input.overhead)} + ${slots} expert slots ` +
    `${formatBytes(slots * input.slotBytes)}`;
  const mib = Math.ceil(smallest / MIB);
  return new PlanError(
    'RAM_TOO_SMALL',
    `the budget of ${formatBytes(input.budgetBytes)} is too small: ${need}; the smallest possible budget is ${mib}M`,
    {
      hint: `use --ram ${mib}M or more, a smaller --ctx, or fewer --threads`,
      details: {
        budget: input.budgetBytes,
        smallestBudget: mib * MIB,
        resident,
        kv,
        scratch,
        overhead: input.overhead,
      },
    },
  );
}
