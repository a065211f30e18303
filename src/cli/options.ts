/** Every flag that commands share, in one table: name, help, parser. */

import { type Command, Option } from 'commander';
import { RequestError, UsageError } from '../common/errors.ts';
import { parseSize } from '../common/units.ts';
import type { Activations, EngineOptions, GenerateRequest, IoMode, KvEncoding } from '../engine/api.ts';
import { MAX_READERS, MAX_THREADS } from '../engine/machine.ts';
import { SAMPLING_RULES, type SamplingField } from '../engine/sampling-options.ts';
import { checkStopStrings } from '../engine/stops.ts';
import { POLICY_CHOICES, type PolicyChoice } from '../experts/policies/policies.ts';
import { KERNEL_CHOICES, type KernelChoice } from '../kernels/kernels.ts';

export interface FlagRow {
  readonly flags: string;
  readonly help: string;
  readonly env?: string;
  readonly choices?: readonly string[];
  /** Text to value; `previous` is what earlier occurrences of the flag gave. */
  readonly parse?: (text: string, previous: unknown) => unknown;
}

/** `example`: a value that is worth giving. */
export const wholeFrom1 =
  (flag: string, example = 4) =>
  (text: string) => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (Number.isSafeInteger(value) && value >= 1) return value;
    throw new UsageError('BAD_FLAG', `${flag} must be a whole number from 1 up, not "${text}"`, {
      hint: `write ${flag} ${example}, for example`,
    });
  };

const threads = (text: string) => {
  const value = wholeFrom1('--threads')(text);
  if (value <= MAX_THREADS) return value;
  throw new UsageError('BAD_FLAG', `--threads must be a whole number from 1 to ${MAX_THREADS}, not "${text}"`, {
    hint: 'leave --threads out for one on each physical core',
  });
};

const readers = (text: string) => {
  const value = wholeFrom1('--readers')(text);
  if (value <= MAX_READERS) return value;
  throw new UsageError('BAD_FLAG', `--readers must be a whole number from 1 to ${MAX_READERS}, not "${text}"`, {
    hint: 'no disk gets faster by more than a few dozen reads at a time',
  });
};

const stops = (text: string, previous: unknown) => {
  const all = [...((previous as string[] | undefined) ?? []), notEmpty('--stop')(text)];
  try {
    return checkStopStrings(all);
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    throw new UsageError('BAD_FLAG', `--${error.message}`, { hint: error.hint });
  }
};

export const notEmpty = (flag: string) => (text: string) => {
  if (text !== '') return text;
  throw new UsageError('BAD_FLAG', `${flag} is empty`, { hint: `give ${flag} a value or leave it out` });
};

export const size = (flag: string) => (text: string) => {
  try {
    return parseSize(text);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    throw new UsageError(error.code, `${flag}: ${error.message}`, { hint: error.hint });
  }
};

const sampling = (field: SamplingField) => (text: string) => {
  const { name, accepts, range } = SAMPLING_RULES[field];
  const value = /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(text) ? Number(text) : Number.NaN;
  if (accepts(value)) return value;
  const flag = `--${name.replaceAll('_', '-')}`;
  throw new UsageError('BAD_FLAG', `${flag} must be ${range}, not "${text}"`, {
    hint: `leave ${flag} out for the default`,
  });
};

/** A number, or a share of what fits. */
const expertSlots = (text: string): number | { share: number } => {
  const percent = /^(\d+(?:\.\d+)?)%$/.exec(text);
  if (percent === null) return wholeFrom1('--expert-slots')(text);
  const share = Number(percent[1]) / 100;
  if (share > 0 && share <= 1) return { share };
  throw new UsageError('BAD_FLAG', `--expert-slots must be above 0% and at most 100%, not "${text}"`, {
    hint: 'write --expert-slots 75%, for example',
  });
};

const driveSpeeds = (text: string) => {
  const speeds = text.split(',').map(each => (/^(\d+\.?\d*|\.\d+)$/.test(each.trim()) ? Number(each) : Number.NaN));
  if (speeds.every(speed => Number.isFinite(speed))) return speeds;
  throw new UsageError('BAD_FLAG', `--drive-speeds must be numbers with commas between them, not "${text}"`, {
    hint: "write the GB/s of the model's drive and of each mirror, like 7,3.5",
  });
};

const ENGINE_FLAGS: readonly FlagRow[] = [
  {
    flags: '--model <model>',
    help: 'directory, .gguf file, or ORG/NAME[@REV] of the cache (coli pull); without it the bundled models/nano',
    env: 'COLI_MODEL',
    parse: notEmpty('--model (or COLI_MODEL)'),
  },
  {
    flags: '--ram <size>',
    help: 'ceiling for the whole process, like 400M or 24G (powers of 1024), or auto (default)',
    parse: text => (text === 'auto' ? 'auto' : size('--ram')(text)),
  },
  {
    flags: '--plan <file>',
    help: 'memory, threads, context and slots as a plan says (coli plan --out FILE)',
    parse: notEmpty('--plan'),
  },
  { flags: '--threads <n>', help: 'compute threads (default: physical cores)', parse: threads },
  {
    flags: '--ctx <tokens>',
    help: "context length (default: the model's maximum, at most 4096)",
    parse: wholeFrom1('--ctx', 4096),
  },
  {
    flags: '--kernels <name>',
    help: 'implementation of the arithmetic',
    choices: KERNEL_CHOICES,
  },
  {
    flags: '--expert-slots <n>',
    help: 'experts kept in memory, over all layers, or 75% of what --ram holds (default: all of it)',
    parse: expertSlots,
  },
  {
    flags: '--activations <kind>',
    help: 'int8 is fast; exact is float32, slow, for comparisons',
    choices: ['exact', 'int8'],
  },
  {
    flags: '--prefetch <mode>',
    help: "read the next layer's likely experts while the disk is idle: on, off, or auto (default), as measured",
    choices: ['off', 'auto', 'on'],
  },
  {
    flags: '--io <mode>',
    help: 'direct reads past the page cache or fails; auto (default) does where it can; buffered never',
    choices: ['auto', 'direct', 'buffered'],
  },
  { flags: '--readers <n>', help: 'reads that the disk gets at a time (default: 4)', parse: readers },
  {
    flags: '--chunk <tokens>',
    help: 'prompt tokens computed together (default: as many as --ram allows)',
    parse: wholeFrom1('--chunk', 128),
  },
  { flags: '--no-tuned', help: 'leave out what coli tune has found for this model here' },
  {
    flags: '--usage <mode>',
    help: 'history of expert use: on (default), read (save nothing), off, or a file of your own; the text is the same',
    env: 'COLI_USAGE',
    parse: notEmpty('--usage (or COLI_USAGE)'),
  },
  {
    flags: '--policy <name>',
    help: 'which experts are given up for others: auto (default) goes by your last texts; the text is the same',
    choices: POLICY_CHOICES,
  },
  {
    flags: '--trace <file>',
    help: 'record which experts are asked for, for coli trace replay',
    parse: notEmpty('--trace'),
  },
  {
    flags: '--mirror <dir>',
    help: "a copy of the model's files on another drive, whole or in part; may be given up to 4 times",
    parse: (text, previous) => [...((previous as string[] | undefined) ?? []), notEmpty('--mirror')(text)],
  },
  {
    flags: '--drive-speeds <list>',
    help: "GB/s of the model's drive and of each mirror, like 7,3.5 (default: measured at the start)",
    parse: driveSpeeds,
  },
  { flags: '--verify', help: "check each expert's hash when it is first read" },
];

const SAMPLING_FLAGS: readonly FlagRow[] = [
  {
    flags: '--max-tokens <n>',
    help: 'most tokens to generate (default: generation_config.json, else the rest of the context)',
    parse: sampling('maxTokens'),
  },
  {
    flags: '--temperature <x>',
    help: '0 is greedy (default: generation_config.json, else 1)',
    parse: sampling('temperature'),
  },
  { flags: '--top-p <x>', help: 'keep the most likely tokens that reach this probability', parse: sampling('topP') },
  { flags: '--top-k <n>', help: 'keep this many most likely tokens; 0 is no limit', parse: sampling('topK') },
  {
    flags: '--min-p <x>',
    help: 'keep tokens at least this likely, relative to the likeliest',
    parse: sampling('minP'),
  },
  { flags: '--seed <n>', help: 'same seed, same text (default: a random one, reported)', parse: sampling('seed') },
  {
    flags: '--repetition-penalty <x>',
    help: 'above 1 makes tokens of prompt and answer less likely',
    parse: sampling('repetitionPenalty'),
  },
  {
    flags: '--presence-penalty <x>',
    help: 'subtracted once from the logit of each token of the answer',
    parse: sampling('presencePenalty'),
  },
  {
    flags: '--frequency-penalty <x>',
    help: 'subtracted from the logit for each time the answer has the token',
    parse: sampling('frequencyPenalty'),
  },
  {
    flags: '--stop <text>',
    help: 'end the answer before this text; may be repeated',
    parse: stops,
  },
  { flags: '--ignore-eos', help: "go on after the model's own end" },
  { flags: '--system <text>', help: 'system message' },
];

export interface EngineFlags {
  model?: string;
  ram?: number | 'auto';
  plan?: string;
  threads?: number;
  ctx?: number;
  kernels?: KernelChoice;
  expertSlots?: number | { share: number };
  readers?: number;
  chunk?: number;
  /** False: --no-tuned. */
  tuned?: boolean;
  activations?: Activations;
  prefetch?: 'off' | 'auto' | 'on';
  io?: IoMode;
  mirror?: string[];
  driveSpeeds?: number[];
  usage?: string;
  policy?: PolicyChoice;
  trace?: string;
  verify?: boolean;
  slots?: number;
  kv?: KvEncoding;
  kvDir?: string;
  kvDirSize?: number;
}

export interface SamplingFlags {
  maxTokens?: number;
  temperature?: number;
  topP?: number;
  topK?: number;
  minP?: number;
  seed?: number;
  repetitionPenalty?: number;
  presencePenalty?: number;
  frequencyPenalty?: number;
  stop?: string[];
  ignoreEos?: boolean;
  system?: string;
}

/** `without`: what says nothing to the command, like ['--trace']. */
export function addEngineFlags(command: Command, without: readonly string[] = []): Command {
  return addFlags(
    command,
    ENGINE_FLAGS.filter(row => !without.includes(row.flags.split(' ')[0])),
  );
}

/** Engine flags that stand on the command line itself; a variable such as COLI_MODEL does not count. */
export function givenEngineFlags(command: Command): string[] {
  const names = ENGINE_FLAGS.map(row => row.flags.split(' ')[0]);
  return command.options
    .filter(option => command.getOptionValueSource(option.attributeName()) === 'cli')
    .flatMap(({ long }) => (long && names.includes(long) ? [long] : []));
}

export function addSamplingFlags(command: Command): Command {
  return addFlags(command, SAMPLING_FLAGS);
}

export function addFlags(command: Command, rows: readonly FlagRow[]): Command {
  for (const row of rows) {
    const option = new Option(row.flags, row.help);
    if (row.env) option.env(row.env);
    if (row.choices) option.choices(row.choices);
    if (row.parse) option.argParser(row.parse);
    command.addOption(option);
  }
  return command;
}

export function engineOptions(flags: EngineFlags, model: string): EngineOptions {
  return {
    model,
    ram: flags.ram,
    plan: flags.plan,
    threads: flags.threads,
    context: flags.ctx,
    kernels: flags.kernels,
    ...expertSlotOptions(flags.expertSlots),
    readers: flags.readers,
    chunk: flags.chunk,
    activations: flags.activations,
    prefetch: flags.prefetch,
    io: flags.io,
    mirrors: flags.mirror,
    driveSpeeds: flags.driveSpeeds,
    usage: flags.usage,
    policy: flags.policy,
    trace: flags.trace,
    verify: flags.verify,
    slots: flags.slots,
    kv: flags.kv,
    kvDir: flags.kvDir,
    kvDirBytes: flags.kvDirSize,
  };
}

function expertSlotOptions(given: EngineFlags['expertSlots']): Pick<EngineOptions, 'expertSlots' | 'expertShare'> {
  return typeof given === 'object' ? { expertShare: given.share } : { expertSlots: given };
}

export function generateOptions(flags: SamplingFlags): Omit<GenerateRequest, 'prompt'> {
  return {
    maxTokens: flags.maxTokens,
    temperature: flags.temperature,
    topP: flags.topP,
    topK: flags.topK,
    minP: flags.minP,
    seed: flags.seed,
    repetitionPenalty: flags.repetitionPenalty,
    presencePenalty: flags.presencePenalty,
    frequencyPenalty: flags.frequencyPenalty,
    stop: flags.stop,
    ignoreEos: flags.ignoreEos,
  };
}
