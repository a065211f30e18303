/** Checks of the machine: Node, kernels, memory, limits. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { errorToWire } from '../common/errors.ts';
import { formatBytes, GIB } from '../common/units.ts';
import { automaticBudget, memoryFacts } from '../engine/machine.ts';
import { planModel } from '../engine/model-plan.ts';
import { withPlan } from '../engine/plan-options.ts';
import type { KernelName, NativeName } from '../kernels/kernels.ts';
import { loadNative } from '../kernels/native/native.ts';
import { selectKernels } from '../kernels/select.ts';
import { fail, pass, skip, warn } from './findings.ts';
import type { Check, Context, Finding } from './types.ts';

/** As package.json demands it. */
const LEAST_NODE = 24;
/** With less than this even small models crawl. */
const LITTLE_MEMORY_BYTES = GIB;
/** Files of the program itself and of its threads: about 5 for each thread were measured, of which there are tens. */
const OWN_FILES = 128;
/** Connections of a server, files of sidecars. */
const COMFORTABLE_FILES = 256;

function node({ host }: Context): Finding {
  const version = host.nodeVersion;
  const details = { version, least: LEAST_NODE, platform: `${process.platform}-${process.arch}` };
  if (Number(version.split('.')[0]) >= LEAST_NODE) return pass(`Node ${version} on ${details.platform}`, details);
  return fail(
    `Node ${version} is older than ${LEAST_NODE}`,
    `install Node ${LEAST_NODE} or later, or run npm install in the directory of the program, which brings one`,
    details,
  );
}

function selected({ options, host }: Context): Finding {
  const choice = options.kernels ?? 'auto';
  const { name, note } = selectKernels(choice, host.kernelSources);
  const details = { kernels: name, choice, note };
  const isNative = name.startsWith('native-');
  if (isNative || choice !== 'auto') {
    return pass(`${name}${isNative ? '' : ', as asked for'}; self-test passed`, details);
  }
  const why = note ?? `${name} was chosen`;
  return warn(why, 'make native kernels usable, which are the fastest: the reason stands there', details);
}

/** Every implementation that can be loaded here, not only the one that will run. */
function selfTests({ host }: Context): Finding {
  const results = Object.fromEntries(loadable(host).map(name => [name, selfTestOf(name, host)]));
  const wrong = Object.entries(results).filter(([, result]) => result.startsWith('self-test failed'));
  const right = Object.entries(results).filter(([, result]) => result === 'pass');
  if (wrong.length === 0) {
    return pass(`${right.length} implementations give the bits of the reference`, { results });
  }
  return fail(
    wrong.map(([name, result]) => `${name}: ${result}`).join('; '),
    'the others are used in its place; please report the processor and this output',
    { results },
  );
}

function loadable({ kernelSources }: Context['host']): KernelName[] {
  let native: KernelName[] = [];
  try {
    native = (kernelSources?.loadNative ?? loadNative)().variants.map(variant => `native-${variant}` as NativeName);
  } catch {
    // kernels.selected says why
  }
  return [...native, 'wasm-relaxed', 'wasm-baseline'];
}

function selfTestOf(name: KernelName, { kernelSources }: Context['host']): string {
  try {
    selectKernels(name, kernelSources);
    return 'pass';
  } catch (error) {
    const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
    return errorToWire(cause).message;
  }
}

function hugePages({ host }: Context): Finding {
  const text = readText(host.root, 'sys/kernel/mm/transparent_hugepage/enabled');
  const setting = /\[(\w+)\]/.exec(text ?? '')?.[1];
  if (setting === undefined) return skip('this system does not tell');
  return pass(`transparent huge pages: ${setting}`, { setting });
}

function memoryAvailable({ host }: Context): Finding {
  const facts = memoryFacts(host.root);
  const { availableBytes, cgroupLeftBytes } = facts;
  const usable = Math.min(availableBytes, cgroupLeftBytes ?? Number.POSITIVE_INFINITY);
  const group = cgroupLeftBytes === null ? 'no cgroup limit' : `the cgroup leaves ${formatBytes(cgroupLeftBytes)}`;
  const summary = `${formatBytes(availableBytes)} available, ${group}`;
  const details = {
    available_bytes: availableBytes,
    cgroup_left_bytes: cgroupLeftBytes,
    automatic_budget_bytes: automaticBudget(facts).bytes,
  };
  if (usable >= LITTLE_MEMORY_BYTES) return pass(summary, details);
  return warn(summary, 'end other programs, or raise the limit of the container', details);
}

function plan({ options, found }: Context): Finding {
  const files = found.files!;
  const { summary, notes } = planModel(files, withPlan({ ...options, model: files.checkpoint.directory }));
  const { total, budget, expertSlots, smallestBudget } = summary;
  const experts = files.shape.moeLayers.length * files.shape.experts;
  const details = {
    budget_bytes: budget,
    budget_source: summary.budgetSource,
    total_bytes: total,
    smallest_budget_bytes: smallestBudget,
    expert_slots: expertSlots,
    experts,
    notes,
  };
  return pass(`${formatBytes(total)} of ${formatBytes(budget)}; ${expertSlots} of ${experts} experts fit`, details);
}

function openFileLimit({ found, host, options }: Context): Finding {
  const text = readText(host.root, 'proc/self/limits') ?? '';
  const limit = /^Max open files\s+(\S+)/m.exec(text)?.[1];
  if (limit === undefined) return skip('this system does not tell');
  const copies = 1 + (options.mirrors?.length ?? 0);
  const shards = found.files!.checkpoint.files.length;
  const needed = OWN_FILES + shards * copies;
  const most = limit === 'unlimited' ? Number.POSITIVE_INFINITY : Number(limit);
  const details = { limit: Number.isFinite(most) ? most : null, needed, shards, mirrors: copies - 1 };
  const summary = `${limit} open files are allowed, about ${needed} needed`;
  const fix = `raise the limit before starting the program: ulimit -n ${Math.max(4096, 2 * needed)}`;
  if (most < needed) return fail(summary, fix, details);
  return most < needed + COMFORTABLE_FILES ? warn(summary, fix, details) : pass(summary, details);
}

export function readText(root: string, file: string): string | null {
  try {
    return readFileSync(join(root, file), 'utf8');
  } catch {
    return null;
  }
}

const group = 'machine';

export const MACHINE_CHECKS: readonly Check[] = [
  { id: 'node.version', group, needs: [], run: node },
  { id: 'kernels.selected', group, needs: [], run: selected },
  { id: 'kernels.selftest', group, needs: [], run: selfTests },
  { id: 'memory.huge-pages', group, needs: [], run: hugePages },
  { id: 'memory.available', group, needs: [], run: memoryAvailable },
];

/** These need the model. */
export const FIT_CHECKS: readonly Check[] = [
  { id: 'memory.plan', group, needs: ['model.tensors'], run: plan },
  { id: 'limits.open-files', group, needs: ['model.tensors'], run: openFileLimit },
];
