/** What a benchmark runs on: a given model, or a synthetic one of the published OLMoE shape. */

import { existsSync, rmSync } from 'node:fs';
import { cpus } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { UsageError } from '../src/common/errors.ts';
import { formatBytes, GIB } from '../src/common/units.ts';
import type { EngineOptions, KernelChoice } from '../src/engine/api.ts';
import type { ModelShape } from '../src/models/family.ts';
import { OLMOE_SHAPE, writeSynth } from './synth.ts';

export interface Settings {
  readonly model: string;
  readonly threads: number | undefined;
  readonly readers: number | undefined;
  readonly kernels: KernelChoice;
  readonly json: boolean;
  readonly tokens: number;
  readonly runs: number;
  /** Share of the experts that have a slot. */
  readonly share: number;
}

const HELP = `options:
  --model DIR    model to measure (default: a random one of the OLMoE shape, 3.9 GB, made once)
  --share X      slots for this share of the experts (0.25)
  --tokens N     tokens per run
  --runs N       accepted runs (3)
  --threads N, --readers N, --kernels NAME, --json`;

export function readSettings(args: string[], defaults: { tokens: number; share: number }): Settings {
  const { values } = parseArgs({
    args,
    options: {
      model: { type: 'string' },
      share: { type: 'string' },
      tokens: { type: 'string' },
      runs: { type: 'string' },
      threads: { type: 'string' },
      readers: { type: 'string' },
      kernels: { type: 'string' },
      json: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  });
  if (values.help) throw new UsageError('HELP', HELP);
  const number = (text: string | undefined, name: string): number | undefined => {
    if (text === undefined) return undefined;
    if (!(Number(text) > 0))
      throw new UsageError('BAD_OPTION', `--${name} ${text} is not a positive number`, { hint: HELP });
    return Number(text);
  };
  const checked = {
    share: number(values.share, 'share') ?? defaults.share,
    tokens: number(values.tokens, 'tokens') ?? defaults.tokens,
    runs: number(values.runs, 'runs') ?? 3,
    threads: number(values.threads, 'threads'),
    readers: number(values.readers, 'readers'),
    kernels: (values.kernels ?? 'auto') as KernelChoice,
    json: values.json ?? false,
  };
  // last, because it may have to be written first
  return { ...checked, model: values.model ?? syntheticModel() };
}

/** Engine options of a run: a ceiling that never decides, and slots for the share of the experts asked for. */
export function engineOptions(
  settings: Pick<Settings, 'model' | 'threads' | 'readers' | 'kernels' | 'share'>,
  { moeLayers, experts, topK }: ModelShape,
  context: number,
): EngineOptions {
  const { model, threads, readers, kernels, share } = settings;
  const expertSlots = Math.max(topK, Math.round(moeLayers.length * experts * share));
  return { model, ram: 64 * GIB, threads, readers, kernels, expertSlots, context };
}

/** Made once below the (ignored) temporary folder of the benchmarks. */
function syntheticModel(): string {
  const directory = fileURLToPath(new URL('results/tmp/olmoe-synth', import.meta.url));
  if (!existsSync(join(directory, 'config.json'))) {
    rmSync(directory, { recursive: true, force: true });
    console.error(`writing ${directory} ...`);
    console.error(formatBytes(writeSynth(directory, OLMOE_SHAPE)));
  }
  return directory;
}

/** One line that every report begins with. */
export function machineLine(): string {
  return `${cpus()[0].model}, ${cpus().length} CPUs, Node ${process.versions.node}`;
}

/** Token ids that repeat nothing for long: what routing sees of a varied text. */
export function variedIds(count: number, vocabSize: number, seed: number): number[] {
  let state = seed;
  return Array.from({ length: count }, () => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return (state >>> 8) % vocabSize;
  });
}
