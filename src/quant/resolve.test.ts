import fs from 'node:fs';
import { describe, expect, test } from 'vitest';
import { checkPart, loadParts } from '../../test/support/checkpoint-bytes.ts';
import { fake, refusal } from '../../test/support/fake-checkpoint.ts';
import { openCheckpoint } from '../formats/checkpoint.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { layoutBytes } from './layouts.ts';
import { encodingTable, resolveExpert, resolveFloatMatrix, resolveMatrix, resolveVector } from './resolve.ts';
import type { StoredRecord } from './stored.ts';

const packs = new URL('../../test/oracles/', import.meta.url);
const open = (name: string): Checkpoint => openCheckpoint(new URL(name, packs).pathname);

function namesOf(layer: number, expert: number) {
  const prefix = `model.layers.${layer}.mlp.experts.${expert}`;
  const [gate, up, down] = ['gate', 'up', 'down'].map(role => `${prefix}.${role}_proj.weight`);
  return {
    layer,
    expert,
    gate,
    up,
    down,
    record: `${prefix}.record`,
    merged: { weights: `${prefix}.merged_weight`, scales: `${prefix}.qs` },
    forms: [{ gate: { name: gate }, up: { name: up }, down: { name: down } }],
  };
}

function readAt(checkpoint: Checkpoint, file: number, offset: number, bytes: number): Uint8Array {
  const target = new Uint8Array(bytes);
  const fd = fs.openSync(checkpoint.files[file].path, 'r');
  fs.readSync(fd, target, 0, bytes, offset);
  fs.closeSync(fd);
  return target;
}

const load = (checkpoint: Checkpoint, record: StoredRecord): Uint8Array[] =>
  loadParts(record, each => readAt(checkpoint, each.file, each.offset, each.bytes));

function raw(checkpoint: Checkpoint, name: string): Uint8Array {
  const { file, offset, bytes } = checkpoint.tensors.get(name)!;
  return readAt(checkpoint, file, offset, bytes);
}

const floatsOf = (bytes: Uint8Array): Float32Array => new Float32Array(bytes.slice().buffer);
const bfloats = (bytes: Uint8Array): Float32Array => {
  const words = Uint32Array.from(new Uint16Array(bytes.slice().buffer), bits => bits << 16);
  return new Float32Array(words.buffer);
};

describe('the published layout: one BF16 tensor per matrix', () => {
  const checkpoint = open('olmoe');
  const shape = { hiddenSize: 96, expertWidth: 40 };

  test('an expert whose matrices follow each other is one extent', () => {
    const names = namesOf(0, 15);
    const record = resolveExpert(checkpoint, names, shape);
    expect(record.name).toBe('layer 0 expert 15');
    expect(record.extents).toHaveLength(1);
    expect(record.extents[0].bytes).toBe(3 * 96 * 40 * 2);
    expect(record.packs).toEqual([]);
    expect(record.parts.map(part => [part.encoding, part.rows, part.columns, part.fileBytes])).toEqual([
      ['bf16', 40, 96, 7680],
      ['bf16', 40, 96, 7680],
      ['bf16', 96, 40, 7680],
    ]);
    const parts = load(checkpoint, record);
    for (const [i, name] of [names.gate, names.up, names.down].entries()) {
      const expected = bfloats(raw(checkpoint, name));
      checkPart(record, i, parts[i], (r, c) => expected[r * record.parts[i].columns + c]);
    }
  });

  test('an expert that is cut by a shard border has more extents', () => {
    const tensors = new Map(checkpoint.tensors);
    const names = namesOf(0, 0);
    const up = tensors.get(names.up)!;
    tensors.set(names.up, { ...up, file: 1, offset: 4096 });
    const record = resolveExpert({ ...checkpoint, tensors }, names, shape);
    expect(record.extents).toHaveLength(2);
    expect(record.parts[1].source).toEqual({ extent: 1, offset: 0 });
  });

  test('vectors become float32, matrices stay', () => {
    const norm = resolveVector(checkpoint, 'model.norm.weight', 96);
    expect(norm.parts[0]).toMatchObject({ encoding: 'bf16', layout: 'f32', rows: 1, columns: 96, source: null });
    const expected = bfloats(raw(checkpoint, 'model.norm.weight'));
    checkPart(norm, 0, load(checkpoint, norm)[0], (_, c) => expected[c]);
    const router = resolveFloatMatrix(checkpoint, 'model.layers.0.mlp.gate.weight', 16, 96);
    expect(router.parts[0]).toMatchObject({ layout: 'bf16', source: { extent: 0, offset: 0 } });
  });

  test('a report of what lies on disk', () => {
    const records = [
      resolveExpert(checkpoint, namesOf(0, 0), shape),
      resolveVector(checkpoint, 'model.norm.weight', 96),
    ];
    expect(encodingTable(records)).toEqual({ bf16: 3 * 7680 + 192 });
  });
});

describe('containers of the C engine', () => {
  test('int4-g64 experts and int8-row matrices with sidecar scales', () => {
    const checkpoint = open('olmoe-int4g64');
    const names = namesOf(1, 7);
    const record = resolveExpert(checkpoint, names, { hiddenSize: 128, expertWidth: 64 });
    // One group per row: the down projection reads the same as int4-row.
    expect(record.parts.map(part => part.encoding)).toEqual(['int4-g64', 'int4-g64', 'int4-row']);
    const parts = load(checkpoint, record);
    for (const [i, name] of [names.gate, names.up, names.down].entries()) {
      const { columns } = record.parts[i];
      const codes = raw(checkpoint, name);
      const scales = floatsOf(raw(checkpoint, `${name}.qs`));
      checkPart(record, i, parts[i], (r, c) => {
        const byte = codes[r * (columns / 2) + (c >> 1)];
        return ((c & 1 ? byte >> 4 : byte & 15) - 8) * scales[r * (columns / 64) + (c >> 6)];
      });
    }
    const name = 'model.layers.0.self_attn.k_proj.weight';
    const k = resolveMatrix(checkpoint, name, 64, 128);
    expect(k.parts[0]).toMatchObject({ encoding: 'int8-row', layout: 'q8g64-f32', fileBytes: 64 * 128 + 64 * 4 });
    const codes = new Int8Array(raw(checkpoint, name).buffer);
    const scales = floatsOf(raw(checkpoint, `${name}.qs`));
    checkPart(k, 0, load(checkpoint, k)[0], (r, c) => codes[r * 128 + c] * scales[r]);
  });

  test('merged int8 experts', () => {
    const checkpoint = open('olmoe-colibri');
    const names = namesOf(2, 3);
    const record = resolveExpert(checkpoint, names, { hiddenSize: 96, expertWidth: 40 });
    const codes = new Int8Array(raw(checkpoint, names.merged.weights).buffer);
    const scales = floatsOf(raw(checkpoint, names.merged.scales));
    const parts = load(checkpoint, record);
    let weight = 0;
    let row0 = 0;
    for (const [i, { rows, columns, encoding }] of record.parts.entries()) {
      expect(encoding).toBe('int8-row');
      const [first, firstRow] = [weight, row0];
      checkPart(record, i, parts[i], (r, c) => codes[first + r * columns + c] * scales[firstRow + r]);
      weight += rows * columns;
      row0 += rows;
    }
    expect([weight, row0]).toEqual([codes.length, scales.length]);
    // Destinations of the parts are apart and aligned.
    for (const [i, step] of record.packs.entries()) {
      expect(step.target % 64).toBe(0);
      if (i > 0) expect(step.target).toBeGreaterThanOrEqual(record.packs[i - 1].target + record.packs[i - 1].bytes);
    }
  });
});

describe('refusals name the tensor, what was expected and what is there', () => {
  const small = { hiddenSize: 32, expertWidth: 16 };
  const names = namesOf(0, 0);
  const tiles = layoutBytes('q4g64', 16, 32);
  const part = (role: string, rows: number, columns: number, offset: number) => {
    return { role, encoding: 'q4g64', rows, columns, offset };
  };
  const good = [part('gate', 16, 32, 0), part('up', 16, 32, tiles), part('down', 32, 16, 2 * tiles)];
  const recordWith = (parts: ReturnType<typeof part>[], bytes = 4096) =>
    fake({ [names.record]: ['U8', [bytes]] }, { experts: new Map([[names.record, { parts }]]) });

  const cases: [string, () => unknown, string, RegExp][] = [
    ['absent', () => resolveMatrix(fake({}), 'w', 2, 3), 'TENSOR_MISSING', /"w" is missing, expected .*\[2, 3\]/],
    ['absent vector', () => resolveVector(fake({}), 'w', 3), 'TENSOR_MISSING', /\[3\]/],
    [
      'transposed',
      () => resolveMatrix(fake({ w: ['F32', [3, 2]] }), 'w', 2, 3),
      'TENSOR_WRONG_SHAPE',
      /"w" has shape \[3, 2\], expected \[2, 3\]/,
    ],
    [
      'flat',
      () => resolveMatrix(fake({ w: ['F32', [6]] }), 'w', 2, 3),
      'TENSOR_WRONG_SHAPE',
      /shape \[6\], expected \[2, 3\]/,
    ],
    [
      'vector length',
      () => resolveVector(fake({ w: ['F32', [4]] }), 'w', 3),
      'TENSOR_WRONG_SHAPE',
      /\[4\], expected \[3\]/,
    ],
    [
      'another FP8',
      () => resolveMatrix(fake({ w: ['F8_E5M2', [2, 3]] }), 'w', 2, 3),
      'ENCODING_UNSUPPORTED',
      /F8_E5M2.*it reads F32, BF16, F16/,
    ],
    ['integer vector', () => resolveVector(fake({ w: ['I32', [3]] }), 'w', 3), 'ENCODING_UNSUPPORTED', /I32/],
    ['no scales', () => resolveMatrix(fake({ w: ['I8', [2, 3]] }), 'w', 2, 3), 'TENSOR_MISSING', /"w.qs" is missing/],
    [
      'no scales where others have some',
      () => resolveMatrix(fake({ w: ['U8', [2, 3]], 'v.qs': ['F32', [2]] }), 'w', 2, 3),
      'TENSOR_MISSING',
      /"w.qs" is missing/,
    ],
    [
      'scales of another type',
      () => resolveMatrix(fake({ w: ['U8', [2, 3]], 'w.qs': ['F16', [2]] }), 'w', 2, 3),
      'TENSOR_WRONG_DTYPE',
      /"w.qs" holds scales as F16, expected F32/,
    ],
    [
      'floats with scales',
      () => resolveMatrix(fake({ w: ['BF16', [2, 3]], 'w.qs': ['F32', [2]] }), 'w', 2, 3),
      'ENCODING_AMBIGUOUS',
      /BF16 but also has "w.qs", which bf16 does not need/,
    ],
    [
      'quantised router',
      () => resolveFloatMatrix(fake({ w: ['U8', [2, 3]], 'w.qs': ['F32', [2]] }), 'w', 2, 3),
      'TENSOR_WRONG_DTYPE',
      /U8, expected F32, BF16 or F16/,
    ],
    [
      'merged of wrong length',
      () =>
        resolveExpert(
          fake({ [names.merged.weights]: ['I8', [99]], [names.merged.scales]: ['F32', [64]] }),
          names,
          small,
        ),
      'TENSOR_WRONG_SHAPE',
      /\[99\], expected \[1536\]/,
    ],
    [
      'merged of wrong type',
      () =>
        resolveExpert(
          fake({ [names.merged.weights]: ['U8', [1536]], [names.merged.scales]: ['F32', [64]] }),
          names,
          small,
        ),
      'TENSOR_WRONG_DTYPE',
      /U8, expected I8/,
    ],
    [
      'merged with missing scales',
      () => resolveExpert(fake({ [names.merged.weights]: ['I8', [1536]] }), names, small),
      'TENSOR_MISSING',
      /experts\.0\.qs" is missing/,
    ],
    [
      'merged with too few scales',
      () =>
        resolveExpert(
          fake({ [names.merged.weights]: ['I8', [1536]], [names.merged.scales]: ['F32', [63]] }),
          names,
          small,
        ),
      'SCALES_WRONG_COUNT',
      /63 scales, expected 64/,
    ],
    [
      'stored twice',
      () =>
        resolveExpert(fake({ [names.merged.weights]: ['I8', [1536]], [names.gate]: ['BF16', [16, 32]] }), names, small),
      'EXPERT_STORED_TWICE',
      /merged_weight.*gate_proj.*layer 0 expert 0/,
    ],
    [
      'record without an index',
      () => resolveExpert(fake({ [names.record]: ['U8', [4096]] }), names, small),
      'RECORD_NOT_DESCRIBED',
      /coli\.index\.json does not list/,
    ],
    [
      'parts in another order',
      () => resolveExpert(recordWith([good[1], good[0], good[2]]), names, small),
      'RECORD_BAD_PARTS',
      /parts up, gate, down .* expected gate, up, down/,
    ],
    [
      'part of another shape',
      () => resolveExpert(recordWith([good[0], { ...good[1], rows: 17 }, good[2]]), names, small),
      'TENSOR_WRONG_SHAPE',
      /is \[17, 32\] according to coli\.index\.json, expected \[16, 32\]/,
    ],
    [
      'overlapping parts',
      () => resolveExpert(recordWith([good[0], { ...good[1], offset: tiles - 1 }, good[2]]), names, small),
      'RECORD_BAD_PARTS',
      /up begins at 543/,
    ],
    [
      'record too short',
      () => resolveExpert(recordWith(good, 4 * tiles - 1), names, small),
      'TENSOR_WRONG_SIZE',
      /has 2175 bytes, but coli\.index\.json puts 1088 bytes at 1088/,
    ],
    [
      'encoding of the future',
      () => resolveExpert(recordWith([{ ...good[0], encoding: 'q2g64' }, good[1], good[2]]), names, small),
      'ENCODING_UNSUPPORTED',
      /q2g64/,
    ],
    [
      'container matrix of another size',
      () =>
        resolveMatrix(
          fake(
            { w: ['U8', [tiles + 1]] },
            { matrices: new Map([['w', { encoding: 'q4g64', rows: 16, columns: 32 }]]) },
          ),
          'w',
          16,
          32,
        ),
      'TENSOR_WRONG_SIZE',
      /545 bytes, expected 544 \(q4g64 of \[16, 32\]\)/,
    ],
  ];
  test.each(cases)('%s', (_, resolve, code, message) => {
    const error = refusal(resolve);
    expect(error.message).toMatch(message);
    expect(error.code).toBe(code);
    expect(error.hint).toBeTruthy();
  });

  test('a good record is read whole, with its hash', () => {
    const hash = 'ab'.repeat(32);
    const checkpoint = recordWith(good);
    const container = { ...checkpoint.container!, sha256: new Map([[names.record, hash]]) };
    const record = resolveExpert({ ...checkpoint, container }, names, small);
    expect(record.extents).toEqual([{ file: 0, offset: 128, bytes: 4096 }]);
    expect(record.parts.map(each => each.source)).toEqual([0, tiles, 2 * tiles].map(offset => ({ extent: 0, offset })));
    expect(record.sha256).toBe(hash);
  });

  test('parts of mixed encodings are all packed', () => {
    const mixed = fake({
      [names.gate]: ['BF16', [16, 32]],
      [names.up]: ['U8', [16, 16]],
      [`${names.up}.qs`]: ['F32', [16]],
      [names.down]: ['F32', [32, 16]],
    });
    const record = resolveExpert(mixed, names, small);
    expect(record.packs.map(step => step.packer)).toEqual(['copy', 'int4-row', 'copy']);
    expect(record.parts.every(each => each.source === null)).toBe(true);
    expect(record.extents).toHaveLength(1);
  });
});
