/**
 * Every pack on WebAssembly and on the fastest native kernels: the bits of the reference kernels, of the prediction head too, with as
 * few expert slots as can be. kernels.test.ts does the same in more ways for some packs.
 */

import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { readModel } from '../../src/engine/model-files.ts';
import { IMPLEMENTATIONS } from '../../src/kernels/test-support.ts';
import { ALL_PACKS, packDirectory, scoreWith } from '../support/packs.ts';

const IDS = Array.from({ length: 30 }, (_, i) => (i * 53 + 17) % 470);

const native = IMPLEMENTATIONS.find(({ name }) => name.startsWith('native-'));
const NAMES = [...IMPLEMENTATIONS.filter(({ name }) => name.startsWith('wasm-')), ...(native ? [native] : [])];

async function digest(model: string, kernels: (typeof NAMES)[number]['name'], expertSlots: number): Promise<string> {
  const { family, config } = readModel({ model });
  const mtp = family.hasMtp(config);
  const options = {
    model,
    kernels,
    mtp,
    expertSlots,
    context: 64,
    threads: 2,
    chunk: 11,
    activations: 'exact',
  } as const;
  const result = await scoreWith(options, { ids: IDS, logits: true, mtp });
  const hash = createHash('sha256');
  for (const values of [result.logits, result.mtp?.logits]) {
    if (values) hash.update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  }
  return hash.digest('hex');
}

test.each(ALL_PACKS)('$name', async ({ name, topK }) => {
  const model = packDirectory(name);
  const expected = await digest(model, 'reference', 3 * topK);
  for (const { name: kernels } of NAMES) expect(await digest(model, kernels, topK), kernels).toBe(expected);
});
