/**
 * A GLM-5 container as the C engine's converter writes it: embedding, output matrix, attention and shared expert as rows of 8 bits,
 * routed experts as 4 bits in groups of 64, the prediction head as 8 bits, router and norms as float32, no indexer. Written by
 * ../support/rewrite.ts after the published layout; no published file was at hand.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { inspectModel } from '../../src/engine/describe.ts';
import { packDirectory, scoreWith, TEST_RAM_BYTES } from '../support/packs.ts';
import { rewriteModel } from '../support/rewrite.ts';

const root = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-c-engine-'));
afterAll(() => fs.rmSync(root, { recursive: true }));

const LAYERS = 5;

function encodingOf(name: string): string | null {
  if (!name.endsWith('.weight') || /norm|mlp\.gate\.|\.shared_head\./.test(name)) return null;
  const isPrediction = name.startsWith(`model.layers.${LAYERS}.`);
  return /\.experts\.\d+\./.test(name) && !isPrediction ? 'int4-g64' : 'int8-row';
}

const container = rewriteModel(packDirectory('glm-moe-dsa'), root, encodingOf, name =>
  name.includes('.indexer.') ? null : name,
);
const IDS = Array.from({ length: 48 }, (_, i) => (i * 41 + 3) % 470);

async function score(model: string, mtp = false) {
  const options = { model, activations: 'exact', ram: TEST_RAM_BYTES, context: 64, mtp } as const;
  return scoreWith(options, { ids: IDS, logits: true, mtp });
}

test('it is read as what it is, and says that it has no indexer', () => {
  const info = inspectModel({ model: container.encoded, ram: TEST_RAM_BYTES });
  expect(Object.keys(info.encodings)).toContain('int8-row');
  expect(info.notes.join('\n')).toContain('the files have no indexer');
});

test('it gives the bits of the float model with its values, its prediction head too', async () => {
  const expected = await score(container.plain, true);
  const got = await score(container.encoded, true);
  const bits = (values: Float32Array) => new Uint32Array(values.buffer);
  expect(bits(got.logits!)).toEqual(bits(expected.logits!));
  expect(bits(got.mtp!.logits)).toEqual(bits(expected.mtp!.logits));
});

test('without an indexer short texts come out the same, long ones do not', async () => {
  const short = {
    model: packDirectory('glm-moe-dsa'),
    activations: 'exact',
    ram: TEST_RAM_BYTES,
    context: 64,
  } as const;
  const whole = await scoreWith(short, { ids: IDS, logits: true });
  const without = rewriteModel(
    packDirectory('glm-moe-dsa'),
    path.join(root, 'dense'),
    () => null,
    name => (name.includes('.indexer.') ? null : name),
  );
  const dense = await scoreWith({ ...short, model: without.plain }, { ids: IDS, logits: true });
  // the indexer of this pack selects 16 keys
  const vocab = whole.logits!.length / IDS.length;
  const row = (logits: Float32Array, i: number) => [...logits.subarray(i * vocab, (i + 1) * vocab)];
  expect(row(dense.logits!, 15)).toEqual(row(whole.logits!, 15));
  expect(row(dense.logits!, 40)).not.toEqual(row(whole.logits!, 40));
});
