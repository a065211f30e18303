/**
 * What this Node needs besides the arenas. Measured with `npm run bench -- overhead` (figures in docs/benchmarks.md); each
 * constant is the highest figure seen plus about a tenth, because a budget is a ceiling and not an aim.
 */

import { MIB } from '../common/units.ts';

/**
 * Main thread, engine worker and text worker. The Node binary's own pages are 50 MiB of it, and 25 to 30 are taken for a moment by the
 * compiler, which turns what has become hot in the first hundreds of requests into machine code on threads of its own.
 */
const BASE_BYTES = 176 * MIB;
/** A compute worker; the reference kernels make more garbage than the WebAssembly ones. */
const LANE_BYTES = 14 * MIB;
const READER_BYTES = 13 * MIB;
/** Lanes that nobody asked for take at most this share of the budget: on many cores they would crowd out the experts. */
const MAX_LANE_SHARE = 0.125;
/**
 * In a checkout each thread loads a type stripper, unless the compile cache has what it would strip. What that leaves free in the three
 * threads is used again when code becomes hot, so a hard day after such a start takes 17 MiB more there, and not the 40 of the start.
 */
const BASE_STRIPPER_BYTES = 20 * MIB;
const WORKER_STRIPPER_BYTES = 10 * MIB;
/** Vocabulary and merges while they load, per byte of tokenizer.json. */
const TOKENIZER_HEAP_PER_BYTE = 26;
/** Name, shape and place of a tensor in the files. */
const HEAP_PER_TENSOR_BYTES = 900;
/** How a matrix or bias of a routed expert is read: from a tensor of its own, a part of a joint one, or a record of a container. */
const HEAP_PER_EXPERT_PART_BYTES = 1300;
/**
 * History of use, of each routed expert: counts, heat and last use (24) of what was before and of what came since, once more each for
 * the filling of slots and for telemetry, and at a save the file (12), its numbers (24), the new file and its copy that is hashed (12
 * each); and the list by heat.
 */
const HISTORY_PER_EXPERT_BYTES = 180;
/**
 * Tables of the store and of the eviction policy, of each routed expert, if all had slots: 27 + 53 bytes; and while a policy is chosen the
 * same for two replays, whose slots and records are objects (60 bytes more). What drives each expert is on, with mirrors: 2.
 */
const POLICY_PER_EXPERT_BYTES = 360;
/** Ids and text of a request on three threads, and the buffers of the sampler. */
const HEAP_PER_CONTEXT_TOKEN_BYTES = 1024;
const HEAP_PER_VOCABULARY_ENTRY_BYTES = 64;

export interface OverheadFacts {
  /** Lanes, the engine's own included. */
  readonly lanes: number;
  readonly readers: number;
  /** Size of tokenizer.json. */
  readonly tokenizerBytes: number;
  /** In the files. */
  readonly tensors: number;
  readonly experts: number;
  /** Matrices and biases of all routed experts. */
  readonly expertParts: number;
  /** For the last passes, and for `--trace`; see routingBytes. */
  readonly routingBytes: number;
  /** Tokens of a session, and sessions. */
  readonly context: number;
  readonly slots: number;
  readonly vocabSize: number;
  /** The threads strip types; see stripsTypes. */
  readonly strips: boolean;
}

/** What the process needs besides the arenas, by what it is for; all in bytes. */
export interface OverheadTerms {
  /** Main thread, engine worker and text worker: their code and heaps. */
  readonly base: number;
  /** Heaps and code of the other compute threads, and of the readers. */
  readonly lanes: number;
  readonly readers: number;
  /** Only for a first start from source. */
  readonly firstStart: number;
  readonly tokenizer: number;
  /** Names and places of tensors and experts. */
  readonly tables: number;
  /** How much each expert was used, and the last passes. */
  readonly history: number;
  /** Which expert is in which slot, and which goes next. */
  readonly policy: number;
  /** Ids and texts of requests, and the buffers of samplers. */
  readonly requests: number;
}

export function overheadTerms(facts: OverheadFacts): OverheadTerms {
  const { lanes, readers, tokenizerBytes, tensors, experts, expertParts, context, slots, vocabSize } = facts;
  return {
    base: BASE_BYTES,
    lanes: (lanes - 1) * LANE_BYTES,
    readers: readers * READER_BYTES,
    firstStart: stripperBytes(facts),
    tokenizer: tokenizerBytes * TOKENIZER_HEAP_PER_BYTE,
    tables: tensors * HEAP_PER_TENSOR_BYTES + expertParts * HEAP_PER_EXPERT_PART_BYTES,
    history: experts * HISTORY_PER_EXPERT_BYTES + facts.routingBytes,
    policy: experts * POLICY_PER_EXPERT_BYTES,
    requests: slots * (context * HEAP_PER_CONTEXT_TOKEN_BYTES + vocabSize * HEAP_PER_VOCABULARY_ENTRY_BYTES),
  };
}

export function overheadBytes(facts: OverheadFacts): number {
  return sumOf(overheadTerms(facts));
}

/** Of all terms. */
export function sumOf(terms: object): number {
  return Object.values(terms).reduce((sum: number, bytes) => sum + (bytes as number), 0);
}

/** The part of overheadBytes that only a start from source without a compile cache needs. */
export function stripperBytes({ lanes, readers, strips }: Pick<OverheadFacts, 'lanes' | 'readers' | 'strips'>): number {
  return strips ? BASE_STRIPPER_BYTES + (lanes - 1 + readers) * WORKER_STRIPPER_BYTES : 0;
}

/** What a start from source needs beyond a plan when nothing is in the compile cache; 0 for compiled packages. */
export function firstStartExtra(
  { lanes, readers }: { readonly lanes: number; readonly readers: number },
  { firstStart }: Pick<OverheadTerms, 'firstStart'>,
): number {
  const isSource = import.meta.url.endsWith('.ts');
  return Math.max(0, stripperBytes({ lanes, readers, strips: isSource }) - firstStart);
}

/** How many of `cores` lanes a budget should pay for; at least one. */
export function affordableLanes(cores: number, budgetBytes: number): number {
  return Math.min(cores, 1 + Math.floor((budgetBytes * MAX_LANE_SHARE) / LANE_BYTES));
}

/**
 * True when this thread had to load Node's type stripper, and so the others will too. Node keeps the list of its loaded
 * parts in an undocumented place; without it the larger plan is made.
 */
export function stripsTypes(): boolean {
  const { moduleLoadList } = process as { moduleLoadList?: readonly string[] };
  return moduleLoadList === undefined || moduleLoadList.some(name => name.includes('amaro'));
}
