/** Loading by a plan that was made before: it is read, held against what else was asked for, and obeyed or refused. */

import { ColiError, PlanError, UsageError } from '../common/errors.ts';
import { exactSize, formatBytes, sizeFlag } from '../common/units.ts';
import { readJsonObject } from '../formats/json.ts';
import type { EngineOptions } from './api.ts';
import { modelIdentity } from './identity.ts';
import { memoryFacts } from './machine.ts';
import type { ModelFiles } from './model-files.ts';
import type { PlannedModel } from './model-plan.ts';
import { PLAN_VERSION, type PlanFile, planSchema } from './plan-schema.ts';

/** A model of the most layers that are read has a tenth of this. */
export const MAX_PLAN_BYTES = 4 * 2 ** 20;

const AGAIN = 'make it again with coli plan --out FILE';

/** Throws PlanError: PLAN_UNREADABLE, PLAN_VERSION, PLAN_INVALID (`details.path` names the field). */
export function readPlanFile(path: string): PlanFile {
  return parsePlan(readObject(path), path);
}

/** `file`: where it comes from. */
function parsePlan(raw: object, file: string): PlanFile {
  const { version } = raw as { readonly version?: unknown };
  if (typeof version === 'number' && Number.isInteger(version) && version !== PLAN_VERSION) {
    throw new PlanError('PLAN_VERSION', `${file} is a plan of version ${version}; this program reads ${PLAN_VERSION}`, {
      hint: version > PLAN_VERSION ? 'use the newer colibri that made it, or make it again here' : AGAIN,
      details: { file, path: 'version', version },
    });
  }
  const parsed = planSchema.safeParse(raw);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const field = issue.path.join('.') || 'all of it';
  throw new PlanError('PLAN_INVALID', `${file} is no plan: ${field}: ${issue.message}`, {
    hint: AGAIN,
    details: { file, path: issue.path.join('.') },
  });
}

function readObject(path: string): Record<string, unknown> {
  try {
    return readJsonObject(path, MAX_PLAN_BYTES);
  } catch (error) {
    const reason = error instanceof ColiError ? error.message : `${path}: ${(error as Error).message}`;
    throw new PlanError('PLAN_UNREADABLE', `the plan cannot be read: ${reason}`, {
      hint: AGAIN,
      details: { file: path },
      cause: error,
    });
  }
}

/** Options that a plan decides: how a flag names each, and where the plan has it. */
const DECIDED = [
  ['ram', '--ram', 'memory.budget_bytes', plan => plan.memory.budget_bytes],
  ['threads', '--threads', 'settings.threads', plan => plan.settings.threads],
  ['context', '--ctx', 'settings.context', plan => plan.settings.context],
  ['expertSlots', '--expert-slots', 'settings.expert_slots', plan => plan.settings.expert_slots],
  ['expertShare', '--expert-slots', 'settings.expert_slots', () => undefined],
  ['slots', '--slots', 'settings.sessions', plan => plan.settings.sessions],
  ['chunk', '--chunk', 'settings.chunk_tokens', plan => plan.settings.chunk_tokens],
  ['readers', '--readers', 'settings.readers', plan => plan.settings.readers],
  ['kv', '--kv', 'settings.kv', plan => plan.settings.kv],
  ['activations', '--activations', 'settings.activations', plan => plan.settings.activations],
] as const satisfies readonly (readonly [keyof EngineOptions, string, string, (plan: PlanFile) => unknown])[];

/** Fills in what the plan of `options.plan` decides. Throws what readPlanFile throws, and UsageError PLAN_CONFLICT. */
export function withPlan(options: EngineOptions): EngineOptions {
  if (options.plan === undefined) return options;
  const plan = typeof options.plan === 'string' ? readPlanFile(options.plan) : parsePlan(options.plan, 'the plan');
  const decided: Record<string, unknown> = {};
  for (const [option, flag, field, read] of DECIDED) {
    const given = options[option];
    const value = read(plan);
    if (given !== undefined && given !== value) {
      throw new UsageError(
        'PLAN_CONFLICT',
        `${flag} ${asTyped(option, given)} contradicts the plan, whose ${field} is ${asTyped(option, value)}`,
        {
          hint: `leave ${flag} or the plan out`,
          details: { flag, path: field, given, planned: value },
        },
      );
    }
    decided[option] = value;
  }
  return { ...options, ...decided, plan };
}

function asTyped(option: keyof EngineOptions, value: unknown): string {
  if (value === undefined) return 'a number';
  if (option === 'ram' && typeof value === 'number') return exactSize(value);
  return option === 'expertShare' ? `${100 * (value as number)}%` : String(value);
}

/** Plans by a plan. What does not fit its budget has outgrown it: a larger --ram beside it would only contradict it. */
export function planBy<T>(plan: PlanFile, server: boolean, make: () => T): T {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof PlanError && error.code === 'RAM_TOO_SMALL')) throw error;
    const needed = error.details['smallestBudget'] as number;
    throw outgrown(plan, { server, needed, budget: needed, cause: error });
  }
}

interface Needs {
  /** A server is asked for. */
  readonly server: boolean;
  readonly needed: number;
  /** What --ram must be at least; undefined: as it was. */
  readonly budget?: number;
  readonly cause?: unknown;
}

function outgrown(plan: PlanFile, { server, needed, budget, cause }: Needs): PlanError {
  const { total_bytes: planned } = plan.memory;
  const why =
    server && !plan.settings.server
      ? 'it was made without --serve'
      : `a plan holds for the flags and the version (${plan.colibri}) that it was made with`;
  const flags = [
    ...(server ? ['--serve'] : []),
    ...(budget === undefined ? [] : [`--ram ${sizeFlag(budget)} or more`]),
  ];
  const more = flags.length === 0 ? '' : `, with ${flags.join(' and ')}`;
  return new PlanError(
    'PLAN_OUTGROWN',
    `what is asked for takes ${formatBytes(needed)}, ${formatBytes(needed - planned)} more than the plan's memory.total_bytes; ${why}`,
    { hint: AGAIN + more, details: { path: 'memory.total_bytes', planned, needed }, cause },
  );
}

/** After planning by a plan: everything still fits. Throws PlanError. */
export function checkPlan(plan: PlanFile, planned: PlannedModel, facts = memoryFacts()): void {
  const server = planned.overhead.server > 0;
  const total = planned.summary.total - firstStartSurplus(plan, planned.overhead.firstStart);
  if (total > plan.memory.total_bytes) throw outgrown(plan, { server, needed: total });
  const free = Math.min(facts.availableBytes, facts.cgroupLeftBytes ?? Number.POSITIVE_INFINITY);
  if (planned.summary.total <= free) return;
  throw new PlanError(
    'PLAN_DOES_NOT_FIT',
    `the plan's memory.total_bytes is ${formatBytes(plan.memory.total_bytes)}, and ${formatBytes(free)} are available now`,
    {
      hint: 'end other programs, or make a plan for what is there',
      details: { path: 'memory.total_bytes', planned: plan.memory.total_bytes, available: free },
    },
  );
}

/** Before planning, because a plan of another model has settings that make no sense here. */
export function checkPlanModel(plan: PlanFile, files: ModelFiles): void {
  const identity = modelIdentity(files);
  if (identity === plan.model.identity) return;
  throw new PlanError(
    'PLAN_OTHER_MODEL',
    `the plan is for another model (model.identity): ${plan.model.family} in ${plan.model.directory}`,
    {
      hint: `make one with coli plan --model ${files.checkpoint.directory} --out FILE`,
      details: { path: 'model.identity', planned: plan.model.identity, identity },
    },
  );
}

/** What this start needs once, and the plan was made when nothing of the kind was needed. */
export function firstStartSurplus(plan: PlanFile, firstStartBytes: number): number {
  return Math.max(0, firstStartBytes - plan.memory.overhead.first_start);
}
