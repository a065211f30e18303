/** Containers of every family and source encoding: float ones give the bits of the source, others what quantising it gives. */

import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { convertCheckpoint } from '../../src/convert/convert.ts';
import { encodeRows } from '../../src/convert/encode.ts';
import type { ConversionPlan, ConvertOptions, PlannedPart } from '../../src/convert/types.ts';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import type { Checkpoint } from '../../src/formats/checkpoint-types.ts';
import { openModel } from '../../src/models/open.ts';
import { familyOf } from '../../src/models/registry.ts';
import { decodeRow } from '../../src/quant/decode.ts';
import { layoutBytes } from '../../src/quant/layouts.ts';
import { PACKERS } from '../../src/quant/pack.ts';
import { temporaryDirectory } from '../hostile/fixtures.ts';
import { ALL_PACKS, packDirectory, scoreWith } from '../support/packs.ts';

const INPUT = Array.from({ length: 24 }, (_, i) => 3 + ((i * 37) % 400));

async function converted(
  pack: string,
  experts: ConvertOptions['experts'],
  dense: ConvertOptions['dense'],
  more: Partial<ConvertOptions> = {},
) {
  const destination = join(temporaryDirectory(), 'out');
  return convertCheckpoint({ source: packDirectory(pack), destination, experts, dense, ...more });
}

/** Logits of the model, its prediction head loaded where it has one. */
async function logitsOf(model: string): Promise<Float32Array> {
  const { config } = openModel(model);
  const family = familyOf(config);
  const mtp = family.hasMtp(family.parseConfig(config));
  const options = { model, mtp, activations: 'exact', context: 64 } as const;
  return (await scoreWith(options, { ids: INPUT, logits: true })).logits!;
}

const ofSources = new Map<string, Promise<Float32Array>>();

function logitsOfSource(pack: string): Promise<Float32Array> {
  const known = ofSources.get(pack) ?? logitsOf(packDirectory(pack));
  ofSources.set(pack, known);
  return known;
}

/** Root of the mean squared difference, in units of the spread of `expected`. */
function distance(got: Float32Array, expected: Float32Array): number {
  let error = 0;
  let spread = 0;
  for (let i = 0; i < expected.length; i++) {
    error += (got[i] - expected[i]) ** 2;
    spread += expected[i] ** 2;
  }
  return Math.sqrt(error / spread);
}

/** A part of the source as float32, all of it at once. */
function valuesOf(checkpoint: Checkpoint, { record, part, rows, columns }: PlannedPart): Float32Array {
  const read = (at: { extent: number; offset: number }, bytes: number): Uint8Array => {
    const extent = record.extents[at.extent];
    const begin = extent.offset + at.offset;
    return Uint8Array.from(readFileSync(checkpoint.files[extent.file].path).subarray(begin, begin + bytes));
  };
  const { layout, source } = record.parts[part];
  let bytes = new Uint8Array(layoutBytes(layout, rows, columns));
  if (source) bytes = Uint8Array.from(read(source, bytes.length));
  else {
    const { packer, inputs, params } = record.packs[part];
    const given = inputs.map(input => read(input, input.bytes));
    PACKERS[packer](given, rows, columns, bytes, params);
  }
  const values = new Float32Array(rows * columns);
  for (let r = 0; r < rows; r++)
    decodeRow(layout, bytes, rows, columns, r, values.subarray(r * columns, (r + 1) * columns));
  return values;
}

function tensorBytes(checkpoint: Checkpoint, name: string): Buffer {
  const { file, offset, bytes } = checkpoint.tensors.get(name)!;
  return readFileSync(checkpoint.files[file].path).subarray(offset, offset + bytes);
}

const isQuantised = (name: string): boolean => /-(?:fp8|mxfp4|int4g64|colibri)$/.test(name);
const NAMES = ALL_PACKS.map(({ name }) => name);

test.each(NAMES.filter(name => !isQuantised(name)))('%s in bfloat16 is the same model, bit by bit', async pack => {
  const { plan } = await converted(pack, 'bf16', 'bf16');
  expect(plan.notes.filter(note => /quantised/.test(note))).toEqual([]);
  expect(await logitsOf(plan.destination)).toEqual(await logitsOfSource(pack));
});

test.each(NAMES)('%s with 4-bit experts: every tensor is its decoded source, encoded; the model runs', async pack => {
  const { plan } = await converted(pack, 'q4g64', 'q8', { threads: 2 });
  const [source, result] = [openCheckpoint(packDirectory(pack)), openCheckpoint(plan.destination)];
  const wrong: string[] = [];
  for (const { name, parts } of plan.shards.flatMap(shard => shard.tensors)) {
    const bytes = tensorBytes(result, name);
    for (const part of parts) {
      const { layout, rows, columns, offset, record } = part;
      if (record.parts[part.part].layout === layout) continue;
      const expected = encodeRows(layout, valuesOf(source, part), rows, columns);
      if (!bytes.subarray(offset, offset + expected.length).equals(expected)) wrong.push(`${name} ${part.role}`);
    }
  }
  expect(wrong).toEqual([]);
  const logits = await logitsOf(plan.destination);
  expect(logits.every(Number.isFinite)).toBe(true);
  // the weights of packs are random: differences of 4 bits show, and change some choices of experts
  expect(distance(logits, await logitsOfSource(pack))).toBeLessThan(0.5);
});

test.each(NAMES.filter(isQuantised))('%s with experts as they are: their values do not change', async pack => {
  const { plan } = await converted(pack, 'source', 'bf16');
  const [source, result] = [openCheckpoint(packDirectory(pack)), openCheckpoint(plan.destination)];
  const experts = plan.shards.flatMap(shard => shard.tensors).filter(({ layer }) => layer !== null);
  for (const { name, parts } of experts) {
    const bytes = tensorBytes(result, name);
    for (const part of parts) {
      const { layout, rows, columns, offset } = part;
      expect(layout).toBe(part.record.parts[part.part].layout);
      const row = new Float32Array(columns);
      const own = bytes.subarray(offset, offset + layoutBytes(layout, rows, columns));
      decodeRow(layout, own, rows, columns, rows - 1, row);
      expect(row).toEqual(valuesOf(source, part).subarray((rows - 1) * columns));
    }
  }
  expect(plan.notes.join()).not.toMatch(/experts/);
  // attention and the like are rounded to bfloat16
  expect(distance(await logitsOf(plan.destination), await logitsOfSource(pack))).toBeLessThan(0.2);
});

test.each(['glm-moe-dsa', 'qwen36', 'gpt-oss'])('%s: every tensor has a hash that loading can compare', async pack => {
  const { plan } = await converted(pack, 'q4g64', 'q8');
  const options = { model: plan.destination, mtp: pack !== 'gpt-oss', verify: true, context: 64 };
  const { logits } = await scoreWith(options, { ids: INPUT, logits: true });
  expect(logits!.every(Number.isFinite)).toBe(true);
  const first = join(plan.destination, plan.shards[0].name);
  const bytes = readFileSync(first);
  const { offset } = openCheckpoint(plan.destination).tensors.get(damagedTensor(plan))!;
  bytes[offset + 7] ^= 1;
  writeFileSync(first, bytes);
  await expect(scoreWith(options, { ids: INPUT, logits: true })).rejects.toMatchObject({ code: 'HASH_MISMATCH' });
});

/** In the first shard: what is taken apart on loading where there is such a thing, else a norm. */
function damagedTensor({ shards: [{ tensors }] }: ConversionPlan): string {
  const resident = tensors.filter(({ layer }) => layer === null);
  return (resident.find(({ role }) => role === 'latent') ?? resident[0]).name;
}

describe('what a tensor is for decides its encoding', () => {
  const encodings = async (pack: string, experts: ConvertOptions['experts'] = 'q4g64') => {
    const { plan } = await converted(pack, experts, 'q8');
    return Object.fromEntries(plan.classes.map(({ role, to }) => [role, to]));
  };

  test('GLM-5: the indexer as it is, latent attention in bfloat16, the prediction head in 8 bits', async () => {
    expect(await encodings('glm-moe-dsa')).toEqual({
      embedding: 'q8g64',
      norm: 'f32',
      head: 'q8g64',
      attention: 'q8g64',
      latent: 'bf16',
      indexer: 'bf16',
      vector: 'f32',
      mlp: 'q8g64',
      shared: 'q8g64',
      router: 'f32',
      experts: 'q4g64',
      'prediction experts': 'q8g64',
    });
    expect((await encodings('glm-moe-dsa-fp8')).indexer).toMatch(/fp8/);
    expect(await encodings('glm-moe-dsa', 'bf16')).toMatchObject({ experts: 'bf16', 'prediction experts': 'bf16' });
  });

  test('Qwen3.6: small gates, convolutions and decays are float32', async () => {
    expect(await encodings('qwen36')).toMatchObject({
      gate: 'f32',
      vector: 'f32',
      attention: 'q8g64',
      experts: 'q4g64',
    });
  });

  test('gpt-oss: biases of experts are float32 inside their records', async () => {
    const { plan } = await converted('gpt-oss', 'q4g64', 'q8');
    const result = openCheckpoint(plan.destination);
    const [{ parts }] = [...result.container!.experts.values()];
    expect(parts.map(({ role, encoding }) => `${role} ${encoding}`)).toEqual([
      'gate q4g64',
      'up q4g64',
      'down q4g64',
      'gateBias f32',
      'upBias f32',
      'downBias f32',
    ]);
  });
});
