/** The command line of `peer`. */

import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { UsageError } from '../../src/common/errors.ts';
import { SHAPES, type ShapeName } from './models.ts';
import { MEASURES, type Measure } from './work.ts';

export interface PeerOptions {
  readonly shape: ShapeName;
  readonly pairs: number;
  /** Lanes of this engine in the pairs. */
  readonly threads: number;
  /** What both engines are tried with. */
  readonly threadCounts: readonly number[];
  readonly kernels: string;
  readonly measures: readonly Measure[];
  /** Read-ahead of the disk in the limited measurement; null leaves it as it is. */
  readonly readAheadKb: number | null;
  readonly json: boolean;
}

const HELP = `options:
  --shape olmoe|small   16 layers x 64 experts of 2048 x 1024 (8 GB in two files), or 8 x 32 of 1024 x 512 (olmoe)
  --pairs N             alternating pairs of runs (3)
  --threads N           lanes of this engine (all processors); llama.cpp counts at its own best
  --kernels NAME        kernels of this engine (auto)
  --only decode|prefill|limited
  --read-ahead KB       sets the read-ahead of the disk while the limited measurement runs (as root): mapped files may
                        need another one than the machine has
  --json`;

/** Throws UsageError for what it does not know. */
export function readOptions(args: string[], processors: number = availableParallelism()): PeerOptions {
  const { values } = parseArgs({
    args,
    options: {
      shape: { type: 'string', default: 'olmoe' },
      pairs: { type: 'string', default: '3' },
      threads: { type: 'string', default: String(processors) },
      kernels: { type: 'string', default: 'auto' },
      only: { type: 'string' },
      'read-ahead': { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean' },
    },
  });
  if (values.help) throw new UsageError('HELP', HELP);
  const { only, 'read-ahead': readAhead } = values;
  return {
    shape: oneOf('shape', values.shape, Object.keys(SHAPES) as ShapeName[]),
    pairs: count('pairs', values.pairs),
    threads: count('threads', values.threads),
    threadCounts: threadCounts(processors),
    kernels: values.kernels,
    measures: only === undefined ? MEASURES : [oneOf('only', only, MEASURES)],
    readAheadKb: readAhead === undefined ? null : count('read-ahead', readAhead),
    json: values.json,
  };
}

/** Counts worth trying: all of a few processors; 1, powers of two, and all of many. */
export function threadCounts(processors: number): number[] {
  const counts = Array.from({ length: processors }, (_, i) => i + 1);
  return counts.filter(n => n <= 4 || n === processors || Number.isInteger(Math.log2(n)));
}

function oneOf<T extends string>(name: string, value: string, known: readonly T[]): T {
  if ((known as readonly string[]).includes(value)) return value as T;
  throw new UsageError('BAD_OPTION', `--${name} ${value}: possible are ${known.join(', ')}`, { hint: HELP });
}

function count(name: string, value: string): number {
  const n = Number(value);
  if (Number.isInteger(n) && n > 0) return n;
  throw new UsageError('BAD_OPTION', `--${name} ${value} is not a positive whole number`, { hint: HELP });
}
