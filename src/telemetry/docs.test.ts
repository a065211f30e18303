import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { MAX_MIRRORS } from '../storage/mirror-route.ts';
import { EVENT_KINDS, MAX_DRIVES, WORK_FIELDS } from './fields.ts';
import { HISTOGRAMS } from './memory.ts';

const text = readFileSync('docs/telemetry.md', 'utf8');
const UNITS = { count: 'number', bytes: 'bytes', us: 'µs' };

it('documents every field, event and histogram in its own words', () => {
  const fields = Object.entries(WORK_FIELDS).map(
    ([name, { unit, help }]) => `| \`${name}\` | ${UNITS[unit]} | ${help} |`,
  );
  const events = Object.entries(EVENT_KINDS).map(([name, { help }]) => `| \`${name}\` | ${help} |`);
  const own = Object.values(EVENT_KINDS).flatMap(({ fields }) =>
    Object.entries(fields).flatMap(([name, { help }]) => (name in WORK_FIELDS ? [] : [`\`${name}\`: ${help}`])),
  );
  const histograms = Object.entries(HISTOGRAMS).map(([name, help]) => `| \`${name}\` | ${help} |`);
  expect([...fields, ...events, ...own, ...histograms].filter(line => !text.includes(line))).toEqual([]);
});

it('tells every drive that a model can have', () => {
  expect(MAX_DRIVES).toBe(MAX_MIRRORS + 1);
});
