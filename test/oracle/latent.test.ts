/** Latent attention with selected keys, and the prediction head: what the reference packs cannot say. */

import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { EngineOptions } from '../../src/engine/api.ts';
import { readReference } from '../../src/eval/reference.ts';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import type { SafetensorsDtype } from '../../src/formats/checkpoint-types.ts';
import { readExact, withFile } from '../../src/formats/files.ts';
import { encodeSafetensorsHeader } from '../../src/formats/safetensors-writer.ts';
import { packDirectory, scoreWith, withRuntime } from '../support/packs.ts';

const GLM = packDirectory('glm-moe-dsa');
const DEEPSEEK = packDirectory('deepseek-v3');
const IDS = readReference(GLM, 5).inputIds;
const SMALL_ARENA_BYTES = 5 << 18;

type Config = Record<string, unknown>;

/** A copy of a pack with some fields and tensors changed, weights in one file. */
function variant(pack: string, change: Config, isKept: (tensor: string) => boolean = () => true): string {
  const directory = mkdtempSync(join(tmpdir(), 'coli-latent-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const config: Config = JSON.parse(readFileSync(join(pack, 'config.json'), 'utf8'));
  writeFileSync(join(directory, 'config.json'), JSON.stringify({ ...config, ...change }));
  for (const name of ['tokenizer.json', 'tokenizer_config.json', 'generation_config.json']) {
    copyFileSync(join(pack, name), join(directory, name));
  }
  const { tensors, files } = openCheckpoint(pack);
  const kept = [...tensors.values()].filter(({ name }) => isKept(name));
  const bytes = kept.map(({ file, offset, bytes: length }) => {
    const into = new Uint8Array(length);
    withFile(files[file].path, fd => readExact(fd, into, offset, files[file].path));
    return into;
  });
  const header = encodeSafetensorsHeader(kept.map(tensor => ({ ...tensor, dtype: tensor.dtype as SafetensorsDtype })));
  writeFileSync(join(directory, 'model.safetensors'), Buffer.concat([header, ...bytes]));
  return directory;
}

const bits = (values: Float32Array | undefined) => Buffer.from(values!.buffer).toString('base64');

async function logits(model: string, options: Partial<EngineOptions> = {}): Promise<string> {
  const got = await scoreWith({ model, context: 128, ...options }, { ids: IDS, logits: true });
  return bits(got.logits);
}

describe('selected keys', () => {
  test('an indexer that may select every key gives the bits of attention without one', async () => {
    const dense = variant(GLM, { model_type: 'deepseek_v3' }, name => !name.includes('.indexer.'));
    const expected = await logits(dense);
    expect(await logits(variant(GLM, { index_topk: IDS.length }))).toBe(expected);
    expect(await logits(variant(GLM, { index_topk: 100_000 }))).toBe(expected);
    expect(await logits(variant(GLM, { index_topk: IDS.length - 1 }))).not.toBe(expected);
    expect(await logits(GLM)).not.toBe(expected);
  });

  test('the pattern of layers means the same in all of its spellings', async () => {
    const expected = await logits(GLM);
    const without = { indexer_types: undefined, mlp_layer_types: undefined };
    expect(await logits(variant(GLM, { ...without, index_topk_pattern: 'FFSFS' }))).toBe(expected);
    expect(await logits(variant(GLM, { ...without, index_topk_pattern: [...'FFSFS'] }))).toBe(expected);
    const regular = { ...without, index_topk_freq: 2, index_skip_topk_offset: 2 };
    expect(await logits(variant(GLM, regular))).toBe(expected);
  });

  test('what a token selects does not depend on chunks, lanes or memories', async () => {
    const run = (options: Partial<EngineOptions>, arenaBytes?: number) =>
      scoreWith({ model: GLM, context: 128, threads: 1, ...options }, { ids: IDS, selected: true }, { arenaBytes });
    const { selected } = await run({});
    expect(selected!.map(rows => rows?.length ?? null)).toEqual([96, 96, null, 96, null]);
    expect(await run({ chunk: 1 })).toEqual({ selected });
    expect(await run({ chunk: 17, threads: 3 }, SMALL_ARENA_BYTES)).toEqual({ selected });
  });
});

describe.each([
  ['glm-moe-dsa', GLM],
  ['deepseek-v3', DEEPSEEK],
])('the prediction head of %s', (_, model) => {
  const predict = async (options: Partial<EngineOptions>, arenaBytes?: number) => {
    const opened = { model, context: 128, threads: 1, mtp: true, ...options };
    const { mtp, logits: main } = await scoreWith(opened, { ids: IDS, logits: true, mtp: true }, { arenaBytes });
    return { main: bits(main), logits: bits(mtp?.logits), hidden: bits(mtp?.hidden) };
  };

  test('has the same bits whatever the chunks, lanes, slots, kernels and memories', async () => {
    const expected = await predict({});
    // the main model is the one without a head
    expect(expected.main).toBe(await logits(model));
    expect(await predict({ chunk: 1, expertSlots: 4 })).toEqual(expected);
    expect(await predict({ chunk: 13, threads: 3, prefetch: 'off' })).toEqual(expected);
    expect(await predict({ chunk: 64, kernels: 'reference', threads: 2 })).toEqual(expected);
    expect(await predict({ chunk: 32, expertSlots: 20, threads: 2 }, SMALL_ARENA_BYTES)).toEqual(expected);
  });

  test('costs nothing unless it is asked for, and its experts count', async () => {
    const opened = (mtp: boolean) =>
      withRuntime({ model, context: 128, threads: 1, mtp }, ({ info, model: built }) => ({
        total: info.totalExperts,
        parameters: info.parameters,
        head: built.mtp !== null,
      }));
    const [without, withHead] = [await opened(false), await opened(true)];
    expect(without.head).toBe(false);
    expect(withHead.head).toBe(true);
    expect(withHead.total).toBe(without.total + 16);
    expect(withHead.parameters).toBeGreaterThan(without.parameters);
  });
});

test('copies of the embedding and the output matrix beside the prediction head make no difference', async () => {
  const opened = { context: 128, threads: 1, mtp: true };
  const request = { ids: IDS, mtp: true };
  const isCopy = (name: string) => /layers\.4\.(embed_tokens|shared_head\.head)\./.test(name);
  expect([...openCheckpoint(DEEPSEEK).tensors.keys()].filter(isCopy)).toHaveLength(2);
  const bare = variant(DEEPSEEK, {}, name => !isCopy(name));
  const { mtp } = await scoreWith({ ...opened, model: DEEPSEEK }, request);
  expect((await scoreWith({ ...opened, model: bare }, request)).mtp).toEqual(mtp);
});

test('a head that is not there is missed only when it is asked for', async () => {
  const bare = variant(DEEPSEEK, {}, name => !name.startsWith('model.layers.4.'));
  expect(await logits(bare)).toBe(await logits(DEEPSEEK));
  await expect(logits(bare, { mtp: true })).rejects.toMatchObject({ code: 'NO_MTP_HEAD' });
  const none = variant(DEEPSEEK, { num_nextn_predict_layers: 0 }, name => !name.startsWith('model.layers.4.'));
  await expect(logits(none, { mtp: true })).rejects.toMatchObject({ code: 'NO_MTP_HEAD' });
  const told = variant(DEEPSEEK, { num_nextn_predict_layers: 0 });
  await expect(logits(told)).rejects.toMatchObject({ code: 'UNKNOWN_TENSORS' });
});
