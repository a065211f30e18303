/** Settings that no reference pack has, against a plain float64 forward pass of the same weights. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { convertCheckpoint } from '../../src/convert/convert.ts';
import { score } from '../../src/engine/score.ts';
import { type Float64Options, float64Logits } from '../fixtures/olmoe-float64.ts';
import { type TinyOptions, tinyModel, writeTiny } from '../fixtures/tiny.ts';
import { scoreWith, withRuntime } from '../support/packs.ts';

/** Longer than a block of keys and values. */
const IDS = Array.from({ length: 70 }, (_, i) => (i * 37 + 11) % 256);

function write(options: TinyOptions): string {
  const directory = mkdtempSync(join(tmpdir(), 'coli-variants-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return writeTiny(directory, options);
}

/** Largest difference of logits, in units of their spread. */
async function difference(options: TinyOptions, reference: Float64Options): Promise<number> {
  const { shape, weights } = tinyModel(options);
  const expected = float64Logits(shape, weights, IDS, reference).flat();
  const model = write(options);
  const { logits } = await scoreWith(
    { model, context: 128, threads: 1, activations: 'exact', chunk: 16 },
    { ids: IDS, logits: true },
  );
  expect(logits).toHaveLength(expected.length);
  const spread = Math.sqrt(expected.reduce((sum, v) => sum + v * v, 0) / expected.length);
  return Math.max(...expected.map((v, i) => Math.abs(v - logits![i]))) / spread;
}

const CASES: { name: string; options: TinyOptions; reference: Float64Options }[] = [
  { name: 'plain', options: {}, reference: {} },
  { name: 'float32 weights', options: { dtype: 'F32' }, reference: {} },
  { name: 'norm_topk_prob', options: { config: { norm_topk_prob: true } }, reference: { normTopk: true } },
  { name: 'clip_qkv', options: { config: { clip_qkv: 0.8 } }, reference: { clip: 0.8 } },
  { name: 'tie_word_embeddings', options: { config: { tie_word_embeddings: true } }, reference: { tied: true } },
  {
    name: 'rope_parameters',
    options: { config: { rope_theta: undefined, rope_parameters: { rope_type: 'default', rope_theta: 500 } } },
    reference: { theta: 500 },
  },
  { name: 'one head for all queries', options: { shape: { kvHeads: 1 } }, reference: {} },
  { name: 'all experts chosen', options: { shape: { topK: 4 } }, reference: {} },
  {
    name: 'ragged sizes',
    options: { shape: { hidden: 72, width: 20, heads: 6, kvHeads: 3, experts: 5, topK: 3 } },
    reference: {},
  },
];

test.each(CASES)('$name agrees with float64', async ({ options, reference }) => {
  expect(await difference(options, reference)).toBeLessThan(1e-4);
});

test.each([
  { name: 'norm_topk_prob', options: {}, reference: { normTopk: true } },
  { name: 'clip_qkv', options: {}, reference: { clip: 0.8 } },
  { name: 'rope_theta', options: {}, reference: { theta: 500 } },
])('the comparison sees a wrong $name', async ({ options, reference }) => {
  expect(await difference(options, reference)).toBeGreaterThan(1e-2);
});

test('a container whose matrices are cut over several memories gives the same bits', async () => {
  const source = write({ shape: { hidden: 256, heads: 4, width: 64, vocab: 640 } });
  const destination = `${source}-container`;
  onTestFinished(() => rmSync(destination, { recursive: true, force: true }));
  await convertCheckpoint({ source, destination, experts: 'q4g64', dense: 'q8' });
  const arenaBytes = 8 * 65536;
  const options = { model: destination, context: 72, threads: 1, chunk: 4, expertSlots: 4 };
  const run = (hooks: { arenaBytes?: number }) =>
    withRuntime(
      options,
      (runtime, session) => {
        const { records, dense } = runtime.files.records;
        const pieces = dense.get('lm_head.weight')!.map(record => records[record].parts[0].layout);
        const { logits } = score(runtime, session, { ids: IDS, logits: true });
        return { arenas: runtime.compute.arenas.count, pieces, logits: Buffer.from(logits!.buffer).toString('base64') };
      },
      hooks,
    );
  const whole = await run({});
  const cut = await run({ arenaBytes });
  expect(whole.pieces).toEqual(['q8g64']);
  expect(cut.pieces.length).toBeGreaterThan(1);
  expect(cut.arenas).toBeGreaterThan(1);
  expect(cut.logits === whole.logits).toBe(true);
});
