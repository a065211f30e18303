/**
 * A whole model in each published encoding against the same model that holds, as float32, the values which the encoding means: equal
 * bits with exact activations. Integer encodings go through tiles, the others through blocks.
 */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { inspectModel } from '../../src/engine/describe.ts';
import { ENCODINGS } from '../support/encodings.ts';
import { packDirectory, scoreWith, TEST_RAM_BYTES } from '../support/packs.ts';
import { type Choose, rewriteModel } from '../support/rewrite.ts';

const root = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-encodings-'));
afterAll(() => fs.rmSync(root, { recursive: true }));

/** Its output projections have two groups of 64 columns, its experts widths that most encodings cannot have. */
const SOURCE = 'qwen3-moe';

const IDS = Array.from({ length: 40 }, (_, i) => (i * 37 + 11) % 500);

async function logitsOf(model: string, kernels: 'auto' | 'reference' = 'auto') {
  const options = { model, activations: 'exact', ram: TEST_RAM_BYTES, context: 64, kernels } as const;
  const { logits } = await scoreWith(options, { ids: IDS, logits: true });
  return new Uint32Array(logits!.buffer);
}

/** Attention and experts; the router and the norms stay floats. */
const matrices =
  (encoding: string): Choose =>
  name =>
    /\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)\.weight$/.test(name) ? encoding : null;

describe.each(ENCODINGS.map(({ name }) => name))('%s', name => {
  const { encoded, plain } = rewriteModel(packDirectory(SOURCE), path.join(root, name), matrices(name));

  test('is read as what it is', () => {
    const { encodings } = inspectModel({ model: encoded, ram: TEST_RAM_BYTES });
    expect(Object.keys(encodings)).toContain(name === 'int4-packed' ? 'int4-row' : name);
    expect(Object.keys(inspectModel({ model: plain, ram: TEST_RAM_BYTES }).encodings).sort()).toEqual(['bf16', 'f32']);
  });

  test('gives the bits of the float model with its values', async () => {
    const expected = await logitsOf(plain);
    expect(await logitsOf(encoded)).toEqual(expected);
    // another encoding would be noticed: the source itself has other values
    expect(await logitsOf(packDirectory(SOURCE))).not.toEqual(expected);
  });
});
