/**
 * What telemetry counts, in one list: the writer, the readers, JSON, /metrics and docs/telemetry.md all follow from it. Times are
 * in microseconds, sizes in bytes.
 */

/** Where the time of the engine's thread goes, waiting for storage excluded. */
export const PHASES = [
  'embed',
  'mixer',
  'dense',
  'router',
  'guess',
  'experts',
  'shared',
  'head',
  'sampler',
  'other',
] as const;
export type Phase = (typeof PHASES)[number];
/** Phases as the clock knows them. */
export const PHASE = Object.fromEntries(PHASES.map((name, at) => [name, at])) as Readonly<Record<Phase, number>>;

/** Where an expert was when it was asked for. */
export const TIERS = ['pinned', 'cached', 'ahead', 'disk'] as const;

/** Drives told apart: the model's own and its mirrors, of which there are up to four. */
export const MAX_DRIVES = 5;

export type Unit = 'count' | 'bytes' | 'us';

export interface Field {
  readonly unit: Unit;
  readonly help: string;
}

const PHASE_FIELDS = {
  embedUs: { unit: 'us', help: 'rows of the embedding' },
  mixerUs: { unit: 'us', help: 'attention, or what stands in its place, with its norm' },
  denseUs: { unit: 'us', help: 'MLPs of layers without experts' },
  routerUs: { unit: 'us', help: 'norm and router' },
  guessUs: { unit: 'us', help: "asking the next layer's router early" },
  expertsUs: { unit: 'us', help: 'routed experts: arithmetic, slots and sums, without the wait' },
  sharedUs: { unit: 'us', help: 'experts that every token uses' },
  headUs: { unit: 'us', help: 'final norm and output matrix' },
  samplerUs: { unit: 'us', help: 'choosing tokens' },
  otherUs: { unit: 'us', help: 'everything else between the begin and the end of a step' },
} as const satisfies Record<`${Phase}Us`, Field>;

const DRIVE_FIELDS = Object.fromEntries(
  Array.from({ length: MAX_DRIVES }, (_, drive) => [
    `drive${drive}Bytes`,
    {
      unit: 'bytes',
      help: drive === 0 ? "bytes of them from the model's own drive" : `bytes of them from mirror ${drive}`,
    },
  ]),
) as Record<`drive${number}Bytes`, Field>;

/** What a layer did in a step; a step has the sum of its layers and what lies outside them. */
export const WORK_FIELDS: Readonly<Record<string, Field>> = {
  rows: { unit: 'count', help: 'tokens computed together' },
  requests: { unit: 'count', help: 'distinct experts asked for' },
  pinnedHits: { unit: 'count', help: 'experts that are kept in memory for good' },
  cachedHits: { unit: 'count', help: 'experts that were still in memory' },
  aheadHits: { unit: 'count', help: 'experts that reads ahead had brought or were bringing' },
  diskHits: { unit: 'count', help: 'experts that had to be read: the misses' },
  pinnedBytes: { unit: 'bytes', help: 'size of the pinned ones' },
  cachedBytes: { unit: 'bytes', help: 'size of the cached ones' },
  aheadBytes: { unit: 'bytes', help: 'size of those read ahead' },
  diskBytes: { unit: 'bytes', help: 'size of those that had to be read' },
  prefetched: { unit: 'count', help: 'reads ahead begun, less those called off' },
  wasted: { unit: 'count', help: 'reads ahead that nobody used' },
  wastedBytes: { unit: 'bytes', help: 'size of those' },
  lateHits: { unit: 'count', help: 'experts read ahead that were still being read when they were asked for' },
  guessable: { unit: 'count', help: 'experts asked for by layers that had been guessed about' },
  guessed: { unit: 'count', help: 'those of them that were among the guesses, in memory or not' },
  reads: { unit: 'count', help: 'reads that arrived' },
  readBytes: { unit: 'bytes', help: 'bytes that arrived from storage' },
  ...DRIVE_FIELDS,
  serviceUs: { unit: 'us', help: 'time of those reads in the readers, summed over readers' },
  waitUs: { unit: 'us', help: "time in which the engine's thread could do nothing but wait for reads" },
  waitedServiceUs: { unit: 'us', help: 'time of reads during that wait, summed over readers' },
  ...PHASE_FIELDS,
  totalUs: { unit: 'us', help: 'all time from begin to end: the phases and the wait' },
};

/** What only a step has. */
export const STEP_ONLY_FIELDS: Readonly<Record<string, Field>> = {
  promptRows: { unit: 'count', help: 'rows of prompts' },
  decodeRows: { unit: 'count', help: 'rows of answers: one for each that took its next token' },
  failed: { unit: 'count', help: '1 when the step ended with an error or was called off' },
  detailed: {
    unit: 'count',
    help: '1 when its layers and phases were looked at; where steps are short, not every one is',
  },
  detailedUs: { unit: 'us', help: 'its time without the wait, if so' },
};

export const WORK_NAMES = Object.keys(WORK_FIELDS);
export const WORK_AT = Object.fromEntries(WORK_NAMES.map((name, at) => [name, at])) as Readonly<Record<string, number>>;
/** Numbers of a layer, and of a step. */
export const WORK_COUNT = WORK_NAMES.length;

export type EventKind = keyof typeof EVENT_KINDS;

/** The events, by the name that their JSON has as `type`. */
export const EVENT_KINDS = {
  layer: { help: 'one layer of one step is done', fields: WORK_FIELDS },
  step: { help: 'one forward pass is done, its tokens chosen', fields: { ...WORK_FIELDS, ...STEP_ONLY_FIELDS } },
  outside: {
    help: 'reads and time between two steps, where there were reads: ends of requests, evaluation',
    fields: WORK_FIELDS,
  },
  repin: {
    help: 'other experts are kept in memory for good',
    fields: { swaps: { unit: 'count', help: 'experts exchanged' } },
  },
  prefetch: {
    help: 'guessing ahead was switched off, or on again',
    fields: { on: { unit: 'count', help: '1 = on' } },
  },
  mirror: {
    help: 'a mirror failed; its reads come from another drive from now on',
    fields: { drive: { unit: 'count', help: 'number of the drive that failed' } },
  },
} as const satisfies Record<string, { help: string; fields: Readonly<Record<string, Field>> }>;

export const KIND_NAMES = Object.keys(EVENT_KINDS) as EventKind[];
export const KIND_CODE = Object.fromEntries(KIND_NAMES.map((name, code) => [name, code])) as Readonly<
  Record<EventKind, number>
>;

/** Words before the fields of every record: kind, step, layer (-1 outside layers), milliseconds since the engine was opened. */
export const HEAD_WORDS = 4;
export const RECORD_WORDS =
  HEAD_WORDS + Math.max(...KIND_NAMES.map(name => Object.keys(EVENT_KINDS[name].fields).length));

/** Numbers by name. */
export type Numbers = Readonly<Record<string, number>>;

export function named(names: readonly string[], values: ArrayLike<number>, from = 0): Record<string, number> {
  return Object.fromEntries(names.map((name, i) => [name, values[from + i]]));
}

/** Service that nobody waited for: while it went on the engine computed. */
export function overlapUs({ serviceUs, waitedServiceUs }: Numbers): number {
  return Math.max(0, serviceUs - waitedServiceUs);
}
