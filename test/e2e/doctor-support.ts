/** What the tests of coli doctor share: single checks, on a tiny model unless another is named. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { CHECKS } from '../../src/doctor/checks.ts';
import { type DoctorReport, runDoctor } from '../../src/doctor/run.ts';
import type { CheckResult, DoctorOptions, Host } from '../../src/doctor/types.ts';
import { packDirectory } from '../support/packs.ts';

export const OLMOE = packDirectory('olmoe');

export function temporary(): string {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-doctor-'));
  onTestFinished(() => fs.rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export interface Asked {
  readonly model?: string;
  readonly options?: Partial<DoctorOptions>;
  readonly host?: Partial<Host>;
}

/** Only the checks with these ids, and what they need. */
export function doctor(ids: readonly string[], { model = OLMOE, options, host }: Asked = {}): Promise<DoctorReport> {
  const wanted = new Set(ids);
  for (const check of CHECKS.toReversed()) if (wanted.has(check.id)) for (const need of check.needs) wanted.add(need);
  const checks = CHECKS.filter(({ id }) => wanted.has(id));
  return runDoctor({ locate: () => model, context: 64, ...options }, host, checks);
}

export async function one(id: string, asked: Asked = {}): Promise<CheckResult> {
  const { checks } = await doctor([id], asked);
  return checks.find(check => check.id === id)!;
}
