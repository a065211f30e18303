/** Experts in the forms that files have: apart, joint, with biases, in containers; one form at a time. */

import { describe, expect, test } from 'vitest';
import { checkPart, contentsOf, loadParts, tensorBytes } from '../../test/support/checkpoint-bytes.ts';
import { fake, refusal } from '../../test/support/fake-checkpoint.ts';
import type { Checkpoint, Dtype } from '../formats/checkpoint-types.ts';
import { bfloatToFloat } from '../kernels/reference/math.ts';
import { layoutBytes } from './layouts.ts';
import type { ExpertForm, ExpertNames, MatrixRef } from './refs.ts';
import { resolveExpert } from './resolve.ts';

type Entries = Record<string, [Dtype, number[]]>;

const EXPERTS = 4;
const HIDDEN = 32;
const WIDTH = 64;
const shape = { hiddenSize: HIDDEN, expertWidth: WIDTH };
const EXPERT = 2;
const slice = { index: EXPERT, of: EXPERTS };

const separate: ExpertForm = {
  gate: { name: 'e.2.g.weight' },
  up: { name: 'e.2.u.weight' },
  down: { name: 'e.2.d.weight' },
};
const joint = (step: 1 | 2, transposed = false): ExpertForm => {
  const rows = (first: number) => ({ first, step, of: 2 * WIDTH });
  const second = step === 1 ? WIDTH : 1;
  return {
    gate: { name: 'e.gu', slice, rows: rows(0), transposed },
    up: { name: 'e.gu', slice, rows: rows(second), transposed },
    down: { name: 'e.down', slice, transposed },
  };
};
const bias = (name: string, rows?: MatrixRef['rows']): MatrixRef => ({ name, slice, rows });
const biases = {
  gate: bias('e.gu_bias', { first: 0, step: 2, of: 2 * WIDTH }),
  up: bias('e.gu_bias', { first: 1, step: 2, of: 2 * WIDTH }),
  down: bias('e.down_bias'),
};

const namesOf = (...forms: ExpertForm[]): ExpertNames => ({ layer: 3, expert: EXPERT, record: 'e.2.record', forms });

const SEPARATE: Entries = {
  'e.2.g.weight': ['BF16', [WIDTH, HIDDEN]],
  'e.2.u.weight': ['BF16', [WIDTH, HIDDEN]],
  'e.2.d.weight': ['BF16', [HIDDEN, WIDTH]],
};
const JOINT: Entries = { 'e.gu': ['BF16', [EXPERTS, 2 * WIDTH, HIDDEN]], 'e.down': ['BF16', [EXPERTS, HIDDEN, WIDTH]] };
const TURNED: Entries = {
  'e.gu': ['BF16', [EXPERTS, HIDDEN, 2 * WIDTH]],
  'e.down': ['BF16', [EXPERTS, WIDTH, HIDDEN]],
};
const BLOCKS: Entries = {
  'e.gu_blocks': ['U8', [EXPERTS, 2 * WIDTH, HIDDEN / 32, 16]],
  'e.gu_scales': ['U8', [EXPERTS, 2 * WIDTH, HIDDEN / 32]],
  'e.down_blocks': ['U8', [EXPERTS, HIDDEN, WIDTH / 32, 16]],
  'e.down_scales': ['U8', [EXPERTS, HIDDEN, WIDTH / 32]],
};
const BIASES: Entries = { 'e.gu_bias': ['BF16', [EXPERTS, 2 * WIDTH]], 'e.down_bias': ['BF16', [EXPERTS, HIDDEN]] };

function bfloats(checkpoint: Checkpoint, contents: Uint8Array, name: string): (i: number) => number {
  const bytes = tensorBytes(contents, checkpoint.tensors.get(name)!);
  return i => bfloatToFloat(bytes[2 * i] | (bytes[2 * i + 1] << 8));
}

describe('joint tensors', () => {
  test('gate rows, then up rows: an expert is read as it is, alone', () => {
    const checkpoint = fake(JOINT);
    const record = resolveExpert(checkpoint, namesOf(separate, joint(1)), shape);
    expect(record.name).toBe('layer 3 expert 2');
    expect(record.packs).toEqual([]);
    const half = WIDTH * HIDDEN * 2;
    const start = checkpoint.tensors.get('e.gu')!.offset + EXPERT * 2 * half;
    const down = checkpoint.tensors.get('e.down')!.offset + EXPERT * half;
    expect(record.extents).toEqual([
      { file: 0, offset: start, bytes: 2 * half },
      { file: 0, offset: down, bytes: half },
    ]);
    expect(record.parts.map(part => part.source)).toEqual([
      { extent: 0, offset: 0 },
      { extent: 0, offset: half },
      { extent: 1, offset: 0 },
    ]);
  });

  test('alternating rows with biases: read once, packed into six parts', () => {
    const checkpoint = fake({ pad: ['U8', [3]], ...JOINT, ...BIASES });
    const contents = contentsOf(checkpoint);
    const record = resolveExpert(checkpoint, namesOf({ ...joint(2), biases }), shape);
    expect(record.extents).toHaveLength(4);
    expect(record.extents[0].bytes).toBe(2 * WIDTH * HIDDEN * 2);
    const parts = loadParts(record, ({ offset, bytes }) => contents.subarray(offset, offset + bytes));
    const joined = bfloats(checkpoint, contents, 'e.gu');
    const down = bfloats(checkpoint, contents, 'e.down');
    for (const i of [0, 1]) {
      checkPart(record, i, parts[i], (r, c) => joined(((EXPERT * WIDTH + r) * 2 + i) * HIDDEN + c));
    }
    checkPart(record, 2, parts[2], (r, c) => down((EXPERT * HIDDEN + r) * WIDTH + c));
    const joinedBias = bfloats(checkpoint, contents, 'e.gu_bias');
    const downBias = bfloats(checkpoint, contents, 'e.down_bias');
    for (const i of [0, 1]) {
      expect(record.parts[3 + i]).toMatchObject({ layout: 'f32', rows: 1, columns: WIDTH });
      checkPart(record, 3 + i, parts[3 + i], (_, c) => joinedBias((EXPERT * WIDTH + c) * 2 + i));
    }
    checkPart(record, 5, parts[5], (_, c) => downBias(EXPERT * HIDDEN + c));
    for (const step of record.packs) expect(step.target % 64).toBe(0);
  });

  test('the same names: blocks are meant as they are, floats transposed', () => {
    const forms = [joint(2), joint(2, true)];
    expect(resolveExpert(fake(BLOCKS), namesOf(...forms), shape).parts.map(part => part.layout)).toEqual(
      Array(3).fill('mxfp4'),
    );
    const checkpoint = fake(TURNED);
    const contents = contentsOf(checkpoint);
    const record = resolveExpert(checkpoint, namesOf(...forms), shape);
    const [gate, up] = loadParts(record, ({ offset, bytes }) => contents.subarray(offset, offset + bytes));
    const joined = bfloats(checkpoint, contents, 'e.gu');
    checkPart(record, 0, gate, (r, c) => joined((EXPERT * HIDDEN + c) * 2 * WIDTH + 2 * r));
    checkPart(record, 1, up, (r, c) => joined((EXPERT * HIDDEN + c) * 2 * WIDTH + 2 * r + 1));
  });
});

describe('one form at a time', () => {
  const forms = [separate, joint(1)];
  test.each<[string, Entries, RegExp]>([
    ['joint and separate', { ...SEPARATE, ...JOINT }, /"e\.2\.g\.weight" and "e\.gu" both hold layer 3 expert 2/],
    ['a rest of the joint one', { ...SEPARATE, 'e.down': JOINT['e.down'] }, /"e\.2\.g\.weight" and "e\.down" both/],
    [
      'a rest of the separate one',
      { ...JOINT, 'e.2.u.weight': SEPARATE['e.2.u.weight'] },
      /"e\.2\.u\.weight" and "e\.gu"/,
    ],
    ['separate and blocks', { ...SEPARATE, ...BLOCKS }, /"e\.2\.g\.weight" and "e\.gu" both/],
    ['a record too', { ...SEPARATE, 'e.2.record': ['U8', [4096]] }, /"e\.2\.record" and "e\.2\.g\.weight" both/],
  ])('%s', (_, entries, message) => {
    const error = refusal(() => resolveExpert(fake(entries), namesOf(...forms), shape));
    expect(error.code).toBe('EXPERT_STORED_TWICE');
    expect(error.message).toMatch(message);
  });

  test('blocks and floats under the same names', () => {
    const error = refusal(() => resolveExpert(fake({ ...BLOCKS, ...JOINT }), namesOf(joint(1)), shape));
    expect(error.code).toBe('ENCODING_AMBIGUOUS');
    expect(error.message).toMatch(/"e\.gu" is BF16 but also has "e\.gu_blocks"/);
  });

  test.each<[string, Entries, string, RegExp]>([
    [
      'fewer experts in the tensor',
      { ...JOINT, 'e.gu': ['BF16', [3, 2 * WIDTH, HIDDEN]] },
      'TENSOR_WRONG_SHAPE',
      /\[3, 128, 32\], expected \[4, 128, 32\]/,
    ],
    [
      'a scale missing',
      { ...BLOCKS, 'e.down_scales': ['U8', [1]] },
      'TENSOR_WRONG_SHAPE',
      /"e\.down_scales" has shape \[1\]/,
    ],
    [
      'one matrix missing',
      { 'e.gu': JOINT['e.gu'] },
      'TENSOR_MISSING',
      /"e\.down" is missing, expected a matrix of shape \[4, 32, 64\]/,
    ],
    ['none', {}, 'TENSOR_MISSING', /"e\.2\.g\.weight" is missing/],
  ])('%s is refused', (_, entries, code, message) => {
    const error = refusal(() => resolveExpert(fake(entries), namesOf(...forms), shape));
    expect(error.message).toMatch(message);
    expect(error.code).toBe(code);
  });

  test('a bias that is missing or of another length', () => {
    const names = namesOf({ ...joint(1), biases });
    expect(refusal(() => resolveExpert(fake(JOINT), names, shape)).message).toMatch(
      /"e\.gu_bias" is missing.*\[4, 128\]/,
    );
    const short: Entries = { ...JOINT, ...BIASES, 'e.down_bias': ['BF16', [EXPERTS, HIDDEN - 1]] };
    expect(refusal(() => resolveExpert(fake(short), names, shape)).message).toMatch(/\[4, 31\], expected \[4, 32\]/);
  });
});

describe('records of a container with biases', () => {
  const wide = layoutBytes('q4g64', WIDTH, HIDDEN);
  const high = layoutBytes('q4g64', HIDDEN, WIDTH);
  const at = [0, wide, 2 * wide, 2 * wide + high, 2 * wide + high + WIDTH * 4, 2 * wide + high + 2 * WIDTH * 4];
  const matrix = (role: string, rows: number, columns: number, offset: number, encoding = 'q4g64') => ({
    role,
    encoding,
    rows,
    columns,
    offset,
  });
  const parts = [
    matrix('gate', WIDTH, HIDDEN, at[0]),
    matrix('up', WIDTH, HIDDEN, at[1]),
    matrix('down', HIDDEN, WIDTH, at[2]),
    matrix('gateBias', 1, WIDTH, at[3], 'f32'),
    matrix('upBias', 1, WIDTH, at[4], 'f32'),
    matrix('downBias', 1, HIDDEN, at[5], 'f32'),
  ];
  const container = (list: typeof parts) =>
    fake({ 'e.2.record': ['U8', [16384]] }, { experts: new Map([['e.2.record', { parts: list }]]) });
  const names = namesOf({ ...joint(2), biases });

  test('six parts, read as they are', () => {
    const record = resolveExpert(container(parts), names, shape);
    expect(record.packs).toEqual([]);
    expect(record.parts.map(part => part.source?.offset)).toEqual(at);
    expect(record.parts.slice(3).map(part => part.layout)).toEqual(['f32', 'f32', 'f32']);
  });

  test('biases that are absent, too many, or not float32', () => {
    const bad = (list: typeof parts, of = names) => refusal(() => resolveExpert(container(list), of, shape)).message;
    expect(bad(parts.slice(0, 3))).toMatch(
      /parts gate, up, down in coli\.index\.json, expected gate, up, down, gateBias/,
    );
    expect(bad(parts, namesOf(joint(1)))).toMatch(
      /gateBias, upBias, downBias in coli\.index\.json, expected gate, up, down$/,
    );
    expect(bad(parts.with(4, { ...parts[4], encoding: 'bf16' }))).toMatch(/has upBias as bf16, expected f32/);
  });
});
