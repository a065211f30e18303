/** The report as JSON (docs/doctor.md). A change that would break a reader counts the version up. */

import { z } from 'zod';
import type { DoctorReport } from './run.ts';
import { GROUPS } from './types.ts';

const DOCTOR_REPORT_VERSION = 1;

const Result = z.strictObject({
  id: z.string(),
  group: z.enum(GROUPS),
  status: z.enum(['pass', 'warn', 'fail', 'skip']),
  summary: z.string(),
  details: z.record(z.string(), z.unknown()),
  fix: z.string().nullable(),
});

export const DoctorReportJson = z.strictObject({
  version: z.literal(DOCTOR_REPORT_VERSION),
  colibri: z.string(),
  mode: z.enum(['standard', 'deep']),
  model: z.string().nullable(),
  status: z.enum(['ok', 'warning', 'error']),
  interrupted: z.boolean(),
  checks: z.array(Result),
});
export type DoctorReportJson = z.infer<typeof DoctorReportJson>;

/** `colibri`: the version of the program. */
export function doctorJson(
  colibri: string,
  { mode, model, status, interrupted, checks }: DoctorReport,
): DoctorReportJson {
  const plain = checks.map(({ id, group, status, summary, details, fix }) => {
    return { id, group, status, summary, details: { ...details }, fix };
  });
  return { version: DOCTOR_REPORT_VERSION, colibri, mode, model, status, interrupted, checks: plain };
}
