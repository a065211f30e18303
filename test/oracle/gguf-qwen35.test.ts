/**
 * Qwen3.5 and 3.6 as GGUF files, whose converter re-orders value heads and rewrites values: they must still be the models of the
 * reference. Columns of a matrix are summed in another order, so bits differ from those of the safetensors files.
 */

import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { convertCheckpoint } from '../../src/convert/convert.ts';
import { openEngine } from '../../src/engine/engine.ts';
import { compareWithReference } from '../../src/eval/oracle.ts';
import { readReference } from '../../src/eval/reference.ts';
import type { KernelChoice } from '../../src/kernels/kernels.ts';
import { openModel } from '../../src/models/open.ts';
import { familyOf } from '../../src/models/registry.ts';
import { Tokenizer } from '../../src/tokenizer/tokenizer.ts';
import { blockColumns, decode } from '../support/gguf-blocks.ts';
import { type Qwen35Options, qwen35AsGguf } from '../support/gguf-qwen35.ts';
import { writeGguf } from '../support/gguf-writer.ts';
import { packDirectory, scoreWith, TEST_RAM_BYTES } from '../support/packs.ts';

const PACK = packDirectory('qwen36');
const CONTEXT = 512;

function write(options: Qwen35Options = {}, file = qwen35AsGguf(PACK, options)): string {
  return writeGguf(join(mkdtempSync(join(tmpdir(), 'qwen35-')), 'model.gguf'), file);
}

async function logitsOf(model: string, kernels: KernelChoice = 'auto'): Promise<Float32Array> {
  const ids = Array.from({ length: 40 }, (_, i) => 3 + ((i * 37) % 400));
  const result = await scoreWith({ model, kernels, activations: 'exact', context: CONTEXT }, { ids, logits: true });
  return result.logits!;
}

describe.each<[string, Qwen35Options, KernelChoice]>([
  ['BF16', {}, 'auto'],
  ['BF16, reference kernels', {}, 'reference'],
  ['F32, gate and up of the experts in one tensor', { dtype: () => 'F32', fused: true }, 'auto'],
])('%s', (_, options, kernels) => {
  test('agrees with the reference: logits, states after layers, experts, prediction head, greedy tokens', async () => {
    const engine = await openEngine({
      model: write(options),
      mtp: true,
      kernels,
      activations: 'exact',
      context: CONTEXT,
      ram: TEST_RAM_BYTES,
    });
    try {
      const report = await compareWithReference(engine, readReference(PACK, engine.info.layers));
      expect(report.firstDifference).toBeNull();
      expect(report.passed).toBe(true);
      expect(report.maxLogitDifference).toBeLessThanOrEqual(report.tolerance);
      expect(report.routerMismatches).toBe(0);
      expect(report.prediction?.maxLogitDifference).toBeLessThanOrEqual(report.tolerance);
      expect(report.greedy.map(({ matching, total }) => [matching, total])).toEqual([
        [48, 48],
        [48, 48],
        [48, 48],
      ]);
    } finally {
      await engine.close();
    }
  });
});

test('Q8_0: the bits of the float model with the same values, near those of the reference', async () => {
  // rows that are no whole blocks stay floats, as in published files
  const file = qwen35AsGguf(PACK, { dtype: (_, columns) => (columns % blockColumns('Q8_0') === 0 ? 'Q8_0' : 'F16') });
  const types = { 0: 'F32', 1: 'F16', 8: 'Q8_0' } as const;
  const tensors = file.tensors.map(tensor => {
    const values = decode(types[tensor.type as keyof typeof types], tensor.bytes);
    return { ...tensor, type: 0, bytes: new Uint8Array(values.buffer) };
  });
  expect(file.tensors.filter(({ type }) => type === 8).length).toBeGreaterThan(40);
  const path = write({}, file);
  const logits = await logitsOf(path);
  expect(logits).toEqual(await logitsOf(write({}, { ...file, tensors })));
  expect(logits).toEqual(await logitsOf(path, 'reference'));
  const exact = await logitsOf(PACK);
  const mean = logits.reduce((sum, logit, i) => sum + Math.abs(logit - exact[i]), 0) / logits.length;
  expect(mean).toBeLessThan(0.2);
});

test('value heads in the order of safetensors files would be noticed', async () => {
  const [tiled, grouped, exact] = [
    await logitsOf(write()),
    await logitsOf(write({ grouped: true })),
    await logitsOf(PACK),
  ];
  const difference = (a: Float32Array) => a.reduce((max, each, i) => Math.max(max, Math.abs(each - exact[i])), 0);
  expect(difference(tiled)).toBeLessThan(1e-3);
  expect(difference(grouped)).toBeGreaterThan(1);
});

test('a container made of it knows that its weights were rewritten', async () => {
  const [source, destination] = [write(), join(mkdtempSync(join(tmpdir(), 'qwen35-')), 'out')];
  await convertCheckpoint({ source, destination, experts: 'bf16', dense: 'bf16' });
  expect(await logitsOf(destination)).toEqual(await logitsOf(source));
});

test('without the prediction head, and with its blocks counted but left out', () => {
  const config = (options: Qwen35Options) => openModel(write(options)).config;
  expect(config({})).toMatchObject({ num_hidden_layers: 4, mtp_num_hidden_layers: 1, gguf_rewritten_weights: true });
  expect(config({ noPrediction: true })).toMatchObject({ num_hidden_layers: 4, mtp_num_hidden_layers: 0 });
  const counted: Qwen35Options = {
    noPrediction: true,
    metadata: [
      ['qwen35moe.block_count', ['u32', 5]],
      ['qwen35moe.nextn_predict_layers', ['u32', 1]],
    ],
  };
  expect(config(counted)).toMatchObject({ num_hidden_layers: 4, mtp_num_hidden_layers: 0 });
});

test('its metadata are the same config', () => {
  const parsed = (path: string) => {
    const { config } = openModel(path);
    const { eos_token_id: _, prefix: __, ...rest } = familyOf(config).parseConfig(config) as Record<string, unknown>;
    return rest;
  };
  const [ours, theirs] = [parsed(write()), parsed(PACK)];
  const compared = Object.keys(theirs).filter(
    key => !/^(?:rope|partial|full_attention_interval|layer_types|mamba|mlp_only)/.test(key),
  );
  expect(compared.length).toBeGreaterThan(20);
  for (const key of compared) {
    if (key !== 'gguf_rewritten_weights') expect([key, ours[key]]).toEqual([key, theirs[key]]);
  }
  expect(ours.rope).toEqual(theirs.rope);
  expect([ours.gguf_rewritten_weights, theirs.gguf_rewritten_weights]).toEqual([true, false]);
});

test('encodes as tokenizer.json does', () => {
  const [ours, theirs] = [Tokenizer.load(write()), Tokenizer.load(PACK)];
  for (const text of ["It's 12345 tokens\r\n\n  of  ÄÖ 漢字 कि <|im_end|>\t!?x", '    indented\n        more']) {
    expect(ours.encode(text, { controlTokens: true })).toEqual(theirs.encode(text, { controlTokens: true }));
  }
});
