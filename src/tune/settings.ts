/** The settings that `coli tune` tries: each decides where time goes, none what is computed. */

import type { EngineOptions } from '../engine/api.ts';

/** Undefined: what the engine chooses by itself. */
export type TunedSettings = Pick<
  EngineOptions,
  'io' | 'readers' | 'prefetch' | 'policy' | 'threads' | 'chunk' | 'expertShare'
>;
export type Knob = keyof TunedSettings;

/** What a knob makes faster: tokens of an answer, or those of a prompt. */
export type Metric = 'decode' | 'prefill';

/** What the engine chose, which is what the others are compared with. */
export interface TuneFacts {
  readonly io: 'direct' | 'buffered';
  readonly readers: number;
  readonly threads: number;
  /** Threads of the machine: more than its cores where each has two. */
  readonly hardwareThreads: number;
  readonly chunk: number;
  readonly context: number;
  /** Slots over all experts: at 1 nothing is read twice, and placement has nothing to decide. */
  readonly slotShare: number;
}

export interface KnobRow {
  readonly knob: Knob;
  readonly metric: Metric;
  /** Values worth a try, the engine's own choice left out. */
  candidates(facts: TuneFacts): readonly (string | number)[];
}

const READERS = [1, 2, 4, 8, 16];
const MIN_CHUNK = 16;
const MAX_CHUNK = 2048;

/** From what costs least to be wrong about to what costs most; each is tried with what was kept before. */
export const KNOBS: readonly KnobRow[] = [
  { knob: 'io', metric: 'decode', candidates: ({ io }) => [io === 'direct' ? 'buffered' : 'direct'] },
  {
    knob: 'readers',
    metric: 'decode',
    candidates: ({ readers }) => READERS.filter(n => n !== readers && near(n, readers)),
  },
  { knob: 'prefetch', metric: 'decode', candidates: ({ slotShare }) => (slotShare < 1 ? ['off', 'on'] : []) },
  { knob: 'policy', metric: 'decode', candidates: ({ slotShare }) => (slotShare < 1 ? ['lru', 'lfru', 'pin'] : []) },
  {
    knob: 'threads',
    metric: 'decode',
    candidates: f => [Math.ceil(f.threads / 2), f.hardwareThreads].filter(n => n !== f.threads),
  },
  { knob: 'expertShare', metric: 'decode', candidates: ({ slotShare }) => (slotShare < 1 ? [0.75, 0.5] : []) },
  {
    knob: 'chunk',
    metric: 'prefill',
    candidates: f => [f.chunk / 2, f.chunk * 2].filter(n => n >= MIN_CHUNK && n <= Math.min(MAX_CHUNK, f.context)),
  },
];

/** Half, double and four times as many: others are too far from what was good enough. */
function near(n: number, readers: number): boolean {
  return n >= readers / 2 && n <= readers * 4;
}

/** "readers 8", "75 % of the expert slots": a setting as people say it. */
export function settingText(knob: Knob, value: string | number | undefined): string {
  if (value === undefined) return `${knob} by itself`;
  switch (knob) {
    case 'io':
      return `${value} reads`;
    case 'readers':
      return `${value} ${value === 1 ? 'reader' : 'readers'}`;
    case 'threads':
      return `${value} ${value === 1 ? 'thread' : 'threads'}`;
    case 'expertShare':
      return `${Math.round(Number(value) * 100)} % of the expert slots`;
    case 'chunk':
      return `prompt in chunks of ${value}`;
    default:
      return `${knob} ${value}`;
  }
}

export function settingsText(settings: TunedSettings): string {
  const given = KNOBS.filter(({ knob }) => settings[knob] !== undefined);
  return given.map(({ knob }) => settingText(knob, settings[knob])).join(', ');
}
