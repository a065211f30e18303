/** White space of JSON answers: never more than the bound in a row, and what programs write stays possible. */

import { expect, it } from 'vitest';
import type { GrammarSpec, JsonSchema } from './api.ts';
import { accepts, matcher, randomNumbers, sample, schemaSpec } from './test-support.ts';

const flat: JsonSchema = {
  type: 'object',
  properties: { score: { type: 'integer' }, tags: { type: 'array', items: { type: 'string', pattern: '^[a-z]*$' } } },
  required: ['score'],
  additionalProperties: false,
};
const recursive: JsonSchema = { type: 'object', properties: { again: { $ref: '#' }, n: { type: 'null' } } };
const call: GrammarSpec = {
  kind: 'sequence',
  parts: [{ kind: 'literal', text: '{"name": "f", "arguments": ' }, schemaSpec(flat), { kind: 'literal', text: '}' }],
};

function nested(depth: number): object {
  return depth === 0 ? {} : { again: nested(depth - 1), n: null };
}

const CASES: [string, GrammarSpec, unknown, number][] = [
  ['a flat schema', schemaSpec(flat), { score: 2, tags: ['a', 'b'] }, 12],
  ['a schema without end', schemaSpec(recursive), nested(8), 32],
  ['any object', { kind: 'json_object' }, { a: [1, { b: [] }], c: 'x' }, 32],
];

it.each(CASES)('%s: what programs write is possible', async (_, spec, value) => {
  for (const indent of [undefined, 2, 4, '\t']) {
    if (indent === 4 && JSON.stringify(value).length > 80) continue;
    expect(await accepts(spec, JSON.stringify(value, null, indent)), String(indent)).toBe(true);
  }
  const pythonic = JSON.stringify(value, null, 1).replace(/\n */g, ' ').replaceAll('{ ', '{').replaceAll(' }', '}');
  expect(await accepts(spec, pythonic.replaceAll('[ ', '[').replaceAll(' ]', ']'))).toBe(true);
});

it.each(CASES)('%s: no more in a row', async (_, spec, value, blanks) => {
  const close = (white: string) => `${JSON.stringify(value).slice(0, -1)}${white}}`;
  expect(await accepts(spec, close(`\n${' '.repeat(blanks)}`))).toBe(true);
  for (const white of [
    `\n${' '.repeat(blanks + 1)}`,
    '  ',
    '\n\n',
    '\t',
    '\n \n',
    '\r\n',
    ' \n',
    `\n${'\t'.repeat(9)}`,
  ]) {
    expect(await accepts(spec, close(white)), JSON.stringify(white)).toBe(false);
  }
});

it('is bounded in every random answer, also in arguments of tools', async () => {
  for (const [spec, blanks] of [
    [schemaSpec(flat), 12],
    [call, 12],
    [schemaSpec(recursive), 32],
    [{ kind: 'json_object' }, 32],
  ] as [GrammarSpec, number][]) {
    const at = await matcher(spec);
    let runs = 0;
    for (let seed = 0; seed < 8; seed++) {
      const ids: number[] = [];
      const text = (await sample(at, randomNumbers(seed), ids)) ?? '';
      at.rollback(ids.length);
      for (const [run] of text.replace(/"(?:[^"\\]|\\.)*"/g, '""').matchAll(/\s+/g)) {
        runs++;
        expect(run).toMatch(/^( |\n( *|\t+))$/);
        expect(run.length).toBeLessThanOrEqual(1 + blanks);
      }
    }
    expect(runs).toBeGreaterThan(5);
    at.dispose();
  }
});
