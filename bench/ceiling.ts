/**
 * `ceiling`: every reference pack, the bundled model and models of your own through a hard day within the smallest budget that is not
 * refused. The highest resident set must stay below the plan; what is left is told.
 */

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { MIB } from '../src/common/units.ts';
import type { DayRequest, DayResult } from './ceiling-day.ts';
import { machineLine } from './subject.ts';

const DAY = fileURLToPath(new URL('./ceiling-day.ts', import.meta.url));
const ORACLES = fileURLToPath(new URL('../test/oracles/', import.meta.url));
const NANO = fileURLToPath(new URL('../models/nano', import.meta.url));

const HELP = `usage: npm run bench -- ceiling [options] [MODEL...]
  --slots LIST    sessions (1,8)
  --threads LIST  compute threads (1,2)
  --ctx N         tokens of a session (768)
  --short N       short requests at the end (100)
  --cold          without a compile cache: a first start from source
  Without a model: every pack in test/oracles, and models/nano.`;

type Env = Readonly<Record<string, string>>;

function child(request: DayRequest, env: Env, folder: string): DayResult & { readonly smallestBudget?: number } {
  const file = join(folder, 'day.json');
  writeFileSync(file, JSON.stringify(request));
  const environment = { ...process.env, COLI_USAGE: 'off', ...env };
  return JSON.parse(execFileSync(process.execPath, [DAY, file], { env: environment, encoding: 'utf8' }));
}

/** A day within `ram` bytes, or within the smallest budget that is not refused there. Throws when it fails. */
export function hardDay(
  request: DayRequest,
  env: Env,
  folder: string,
  ram = smallestBudget(request, env, folder),
): DayResult {
  const result = child({ ...request, options: { ...request.options, ram } }, env, folder);
  if (result.smallestBudget !== undefined) {
    throw new Error('refused what was enough a moment ago: sources have changed in between; run it again');
  }
  return result;
}

function smallestBudget({ options, shortRequests }: DayRequest, env: Env, folder: string): number {
  const { smallestBudget: ram } = child({ options: { ...options, ram: MIB }, shortRequests }, env, folder);
  if (ram === undefined) throw new Error('one MiB was enough');
  return ram;
}

export async function run(args: string[]): Promise<void> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      slots: { type: 'string', default: '1,8' },
      threads: { type: 'string', default: '1,2' },
      ctx: { type: 'string', default: '768' },
      short: { type: 'string', default: '100' },
      cold: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  if (values.help) return console.log(HELP);
  const folder = mkdtempSync(join(tmpdir(), 'coli-ceiling-'));
  const env: Env = values.cold ? { NODE_DISABLE_COMPILE_CACHE: '1' } : { NODE_COMPILE_CACHE: join(folder, 'cache') };
  const models =
    positionals.length > 0 ? positionals : [NANO, ...readdirSync(ORACLES).map(name => join(ORACLES, name))];
  console.log(`${machineLine()}; budgets are the smallest possible, context ${values.ctx}`);
  try {
    for (const model of models) {
      for (const slots of values.slots.split(',').map(Number)) {
        for (const threads of values.threads.split(',').map(Number)) {
          const request = { options: { model, slots, threads, context: Number(values.ctx) }, shortRequests: 1 };
          // the first one fills the compile cache
          if (!values.cold) hardDay(request, env, folder);
          const result = hardDay({ ...request, shortRequests: Number(values.short) }, env, folder);
          if (!report(`${basename(model)}, ${slots} sessions, ${threads} threads`, result)) process.exitCode = 1;
        }
      }
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** False when the plan was exceeded. */
function report(name: string, { plan, highest }: DayResult): boolean {
  const most = Math.max(...Object.values(highest));
  const left = plan.total - most;
  const parts = Object.entries(highest).map(([part, bytes]) => `${part} ${Math.round(bytes / MIB)}`);
  const verdict = left < 0 ? 'EXCEEDED' : 'left';
  console.log(
    `${name.padEnd(44)} plan ${Math.round(plan.total / MIB)} MiB (runtime ${Math.round(plan.overhead / MIB)}), ${Math.round(Math.abs(left) / MIB)} ${verdict}; ${parts.join(', ')}`,
  );
  return left >= 0;
}
