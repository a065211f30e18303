/** What the tests of coli doctor share: single checks, on a tiny model unless another is named. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { onTestFinished } from 'vitest';
import { CHECKS } from '../../src/doctor/checks.ts';
import { type DoctorReport, runDoctor } from '../../src/doctor/run.ts';
import type { Check, CheckResult, DoctorOptions, Host } from '../../src/doctor/types.ts';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
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

// biome-ignore lint/suspicious/noExplicitAny: files are broken in ways that no type knows
type Json = any;

/** A copy that may be broken. */
export function copyOf(model: string): string {
  const directory = path.join(temporary(), 'model');
  fs.cpSync(model, directory, { recursive: true, filter: name => !path.basename(name).startsWith('reference.') });
  return directory;
}

/** Kernels have nothing to do with what is broken here, and testing them takes longest. */
const FAST = CHECKS.filter(({ id }) => !id.startsWith('kernels.'));

export function examine(
  model: string,
  options: Partial<DoctorOptions> = {},
  checks: readonly Check[] = FAST,
): Promise<DoctorReport> {
  return runDoctor({ locate: () => model, quick: true, context: 64, ...options }, {}, checks);
}

export function find({ checks }: DoctorReport, id: string): CheckResult {
  const check = checks.find(each => each.id === id);
  if (!check) throw new Error(`no check ${id}`);
  return check;
}

export function editJson(directory: string, name: string, edit: (json: Json) => void): void {
  const file = path.join(directory, name);
  const json = JSON.parse(fs.readFileSync(file, 'utf8'));
  edit(json);
  fs.writeFileSync(file, JSON.stringify(json));
}

/** Overwrites bytes of a tensor, `at` bytes behind its beginning. */
export function damage(directory: string, tensor: string, at: number, bytes: readonly number[]): void {
  const { tensors, files } = openCheckpoint(directory);
  const { file, offset } = tensors.get(tensor)!;
  const fd = fs.openSync(files[file].path, 'r+');
  fs.writeSync(fd, Uint8Array.from(bytes), 0, bytes.length, offset + at);
  fs.closeSync(fd);
}
