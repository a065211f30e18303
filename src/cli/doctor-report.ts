/** What coli doctor found, for people: one line per check, problems last with what to do. */

import type { DoctorReport } from '../doctor/run.ts';
import { type CheckResult, GROUPS, type Group, type Status } from '../doctor/types.ts';
import { plural } from './report.ts';
import { escapeControls, type Style, styled, wrapLine } from './terminal.ts';

const COLUMNS = 80;
const TITLES: Readonly<Record<Group, string>> = {
  machine: 'Machine',
  model: 'Model',
  storage: 'Storage',
  sidecars: 'Beside the model',
  deep: 'Every byte',
};
const MARKS: Readonly<Record<Status, string>> = { pass: 'ok', warn: 'WARN', fail: 'FAIL', skip: '-' };
const STYLES: Readonly<Record<Status, Style | null>> = { pass: null, warn: 'bold', fail: 'red', skip: 'dim' };
const MARK_COLUMNS = 4;

/** Lines for `stream`: coloured where it is a terminal that wants it. */
export function doctorLines(report: DoctorReport, stream: NodeJS.WriteStream): string[] {
  const idColumns = Math.max(...report.checks.map(({ id }) => id.length));
  const lines: string[] = [];
  for (const group of GROUPS) {
    const checks = report.checks.filter(check => check.group === group);
    if (checks.length === 0) continue;
    lines.push(styled('bold', TITLES[group], stream));
    for (const check of checks) lines.push(checkLine(check, idColumns, stream));
  }
  const problems = report.checks.filter(({ status }) => status === 'fail' || status === 'warn');
  // errors first
  problems.sort((a, b) => Number(a.status === 'warn') - Number(b.status === 'warn'));
  for (const problem of problems) lines.push('', ...problemLines(problem, stream));
  return [...lines, '', closingLine(report)];
}

/** "  ok    model.shards  4 files, 1.20 GB": at most 80 columns; what problems have to say in full stands below. */
function checkLine({ id, status, summary }: CheckResult, idColumns: number, stream: NodeJS.WriteStream): string {
  const head = `  ${MARKS[status].padEnd(MARK_COLUMNS)}  ${id.padEnd(idColumns)}  `;
  const line = clipped(head + escapeControls(summary));
  const style = STYLES[status];
  return style === null ? line : styled(style, line, stream);
}

function clipped(line: string): string {
  return line.length <= COLUMNS ? line : `${line.slice(0, COLUMNS - 3)}...`;
}

function problemLines({ id, status, summary, fix, details }: CheckResult, stream: NodeJS.WriteStream): string[] {
  const code = typeof details.code === 'string' ? ` (${details.code})` : '';
  const title = `${status === 'fail' ? 'Error' : 'Warning'}: ${id}${code}`;
  const body = [`  found  ${summary}`, ...(fix === null ? [] : [`  to do  ${fix}`])];
  return [
    styled(status === 'fail' ? 'red' : 'bold', title, stream),
    ...body.flatMap(line => wrapLine(escapeControls(line), COLUMNS).split('\n')),
  ];
}

function closingLine({ checks, interrupted }: DoctorReport): string {
  const number = (status: Status) => checks.filter(check => check.status === status).length;
  const skipped = number('skip') > 0 ? `, ${number('skip')} skipped` : '';
  const counts = `${plural(number('fail'), 'error')}, ${plural(number('warn'), 'warning')}, ${number('pass')} ok${skipped}`;
  return interrupted ? `Interrupted. ${counts}.` : `${counts}.`;
}
