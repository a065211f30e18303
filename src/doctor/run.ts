/** Runs the checks one after the other. Nothing is written anywhere. */

import { CHECKS } from './checks.ts';
import { failed, skip } from './findings.ts';
import type { Check, CheckResult, Context, DoctorOptions, Finding, Host, Status } from './types.ts';

export interface DoctorReport {
  readonly mode: 'standard' | 'deep';
  /** Null when it was not found. */
  readonly model: string | null;
  readonly status: 'ok' | 'warning' | 'error';
  /** A deep check was ended early. */
  readonly interrupted: boolean;
  readonly checks: readonly CheckResult[];
}

const HERE: Host = {
  root: '/',
  nodeVersion: process.versions.node,
  kernelSources: undefined,
  openFile: undefined,
  env: process.env,
};

/** Every check runs, whatever the others say, unless one that it needs has not passed. */
export async function runDoctor(
  options: DoctorOptions,
  host: Partial<Host> = {},
  checks: readonly Check[] = CHECKS,
): Promise<DoctorReport> {
  const context: Context = { options, host: { ...HERE, ...host }, found: {} };
  try {
    const results = await runAll(checks, context);
    return {
      mode: options.deep ? 'deep' : 'standard',
      model: context.found.path ?? null,
      status: statusOf(results),
      interrupted: options.signal?.aborted ?? false,
      checks: results,
    };
  } finally {
    await context.found.text?.close();
  }
}

async function runAll(checks: readonly Check[], context: Context): Promise<CheckResult[]> {
  const results: CheckResult[] = [];
  const statuses = new Map<string, Status>();
  for (const check of checks) {
    const { id, group } = check;
    if (check.deep && !context.options.deep) continue;
    const result = { id, group, ...(await findingOf(check, context, statuses)) };
    statuses.set(id, result.status);
    results.push(result);
  }
  return results;
}

async function findingOf(check: Check, context: Context, statuses: ReadonlyMap<string, Status>): Promise<Finding> {
  const missing = check.needs.find(id => statuses.get(id) === 'fail' || statuses.get(id) === 'skip');
  if (missing !== undefined) return skip(`needs ${missing}`, { needs: missing });
  if (check.deep && context.options.signal?.aborted) return skip('interrupted before it began');
  try {
    return await check.run(context);
  } catch (error) {
    return failed(error);
  }
}

function statusOf(results: readonly CheckResult[]): DoctorReport['status'] {
  if (results.some(({ status }) => status === 'fail')) return 'error';
  return results.some(({ status }) => status === 'warn') ? 'warning' : 'ok';
}
