/** Sources that are not plain floats in safetensors files: GGUF, missing parts, damaged scales; and pieces of any size. */

import fs from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { copyPack, INDEX, readShard, temporaryDirectory, writeShard } from '../../test/hostile/fixtures.ts';
import { type PackOptions, packAsGguf } from '../../test/support/gguf-packs.ts';
import { qwen35AsGguf } from '../../test/support/gguf-qwen35.ts';
import { writeGguf } from '../../test/support/gguf-writer.ts';
import { packDirectory, scoreWith } from '../../test/support/packs.ts';
import { openCheckpoint } from '../formats/checkpoint.ts';
import { layoutBytes } from '../quant/layouts.ts';
import { readTokenizerFile } from '../tokenizer/tokenizer-file.ts';
import { convertCheckpoint, planConversion } from './convert.ts';
import { encodeJob } from './encode.ts';
import { piecesOf } from './pieces.ts';
import type { ConvertOptions, PlannedPart } from './types.ts';

function optionsFor(source: string, more: Partial<ConvertOptions> = {}): ConvertOptions {
  return { source, destination: join(temporaryDirectory(), 'out'), experts: 'q4g64', dense: 'q8', ...more };
}

const INPUT = Array.from({ length: 24 }, (_, i) => 3 + ((i * 37) % 400));

async function logitsOf(model: string): Promise<Float32Array> {
  return (await scoreWith({ model, activations: 'exact', context: 64 }, { ids: INPUT, logits: true })).logits!;
}

const refused = (code: string, message: RegExp) =>
  expect.objectContaining({ code, message: expect.stringMatching(message) });

describe('GGUF', () => {
  const write = (pack: string, architecture: string, options: PackOptions = {}): string =>
    writeGguf(
      join(temporaryDirectory(), `${pack}.gguf`),
      architecture === 'qwen35moe'
        ? qwen35AsGguf(packDirectory(pack))
        : packAsGguf(packDirectory(pack), architecture, options),
    );

  test.each([
    ['olmoe', 'olmoe', {}],
    ['gpt-oss', 'gpt-oss', {}],
    ['qwen36', 'qwen35moe', {}],
    ['deepseek-v3', 'deepseek2', {}],
    ['deepseek-v3', 'deepseek2', { splitHeads: true }],
  ] as const)('%s %s %j in bfloat16 gives its bits and its tokens', async (pack, architecture, options) => {
    const source = write(pack, architecture, options);
    const conversion = optionsFor(source, { experts: 'bf16', dense: 'bf16' });
    const { plan } = await convertCheckpoint(conversion);
    expect(plan.notes.join()).not.toMatch(/quantised/);
    expect(plan.copied).toEqual([]);
    expect(plan.made).toEqual(expect.arrayContaining(['config.json', 'tokenizer.json', 'tokenizer_config.json']));
    const got = await logitsOf(plan.destination);
    expect(got.every(Number.isFinite)).toBe(true);
    expect(got).toEqual(await logitsOf(source));
    const { directory: _, ...tokenizer } = readTokenizerFile(plan.destination);
    const { directory: __, ...expected } = readTokenizerFile(source);
    expect(tokenizer).toEqual(expected);
  });

  test('a directory: its files come along, the config is that of the metadata', async () => {
    const path = write('olmoe', 'olmoe');
    const directory = join(path, '..');
    fs.writeFileSync(join(directory, 'LICENSE'), 'do as you like');
    fs.writeFileSync(join(directory, 'config.json'), '{"model_type":"another"}');
    fs.copyFileSync(join(packDirectory('olmoe'), 'tokenizer.json'), join(directory, 'tokenizer.json'));
    const { plan } = await convertCheckpoint(optionsFor(directory));
    expect([plan.copied, plan.made]).toEqual([['LICENSE', 'tokenizer.json'], ['config.json']]);
    const config = JSON.parse(fs.readFileSync(join(plan.destination, 'config.json'), 'utf8'));
    expect(config.model_type).toBe('olmoe');
    const [ours, theirs] = [plan.destination, packDirectory('olmoe')].map(each => join(each, 'tokenizer.json'));
    expect(fs.readFileSync(ours)).toEqual(fs.readFileSync(theirs));
  });

  test('a vocabulary that cannot be written is refused by name before the first write', () => {
    const options = optionsFor(write('olmoe', 'olmoe', { metadata: [['tokenizer.ggml.model', ['string', 'llama']]] }));
    expect(() => planConversion(options)).toThrow(refused('TOKENIZER_UNSUPPORTED', /a tokenizer of the kind "llama"/));
    expect(fs.existsSync(options.destination)).toBe(false);
  });
});

/** A copy of a pack without the tensors that match. */
function without(pack: string, pattern: RegExp): string {
  const source = copyPack(pack);
  for (const name of fs.readdirSync(source).filter(each => each.endsWith('.safetensors'))) {
    const { header, data } = readShard(join(source, name));
    const kept: Buffer[] = [];
    let end = 0;
    for (const [tensor, entry] of Object.entries(header)) {
      if (tensor === '__metadata__') continue;
      const bytes = data.subarray(...entry.data_offsets);
      if (pattern.test(tensor)) delete header[tensor];
      else {
        kept.push(bytes);
        entry.data_offsets = [end, end + bytes.length];
        end += bytes.length;
      }
    }
    writeShard(join(source, name), JSON.stringify(header), Buffer.concat(kept));
  }
  fs.rmSync(join(source, INDEX), { force: true });
  return source;
}

test('a prediction head that config.json names and the files lack is not asked for', async () => {
  const source = without('qwen36', /^mtp\./);
  const { plan } = await convertCheckpoint(optionsFor(source, { experts: 'bf16', dense: 'bf16' }));
  expect(plan.notes).toContain('config.json names a prediction head, which the files do not have');
  expect(await logitsOf(plan.destination)).toEqual(await logitsOf(source));
});

test('half of a prediction head is an incomplete model', () => {
  const options = optionsFor(without('qwen36', /^mtp\.norm/));
  expect(() => planConversion(options)).toThrow(refused('TENSORS_MISSING', /mtp\.norm\.weight/));
});

/** Sets one byte of a tensor of a copied pack. */
function damaged(pack: string, tensor: string, at: number, bytes: readonly number[]): string {
  const source = copyPack(pack);
  const { files, tensors } = openCheckpoint(source);
  const { file, offset } = tensors.get(tensor)!;
  const content = fs.readFileSync(files[file].path);
  content.set(bytes, offset + at);
  fs.writeFileSync(files[file].path, content);
  return source;
}

describe('a scale or code that is no number stops the job with its tensor', () => {
  const F32_NAN = [0, 0, 0xc0, 0x7f];
  test.each([
    ['qwen3-moe-fp8', 'model.layers.0.mlp.experts.3.up_proj.weight', 5, [0x7f], 'up weight (0, 5)'],
    ['gpt-oss-mxfp4', 'model.layers.0.mlp.experts.down_proj_scales', 0, [0xff], 'down weight (0, 0)'],
    ['olmoe-int4g64', 'model.layers.0.mlp.experts.3.up_proj.weight.qs', 0, F32_NAN, 'up'],
  ] as const)('%s', async (pack, tensor, at, bytes, place) => {
    const source = damaged(pack, tensor, at, bytes);
    for (const [experts, threads] of [
      ['q4g64', 1],
      ['source', 1],
      ['source', 2],
    ] as const) {
      await expect(convertCheckpoint(optionsFor(source, { experts, threads }))).rejects.toEqual(
        refused('WEIGHT_NOT_FINITE', new RegExp(`layer 0 expert \\d+.*${place.replace(/[()]/g, '\\$&')}`)),
      );
    }
  });
});

test.each(['qwen3-moe-fp8', 'olmoe-int4g64', 'olmoe-colibri', 'glm-moe-dsa-fp8', 'olmoe'])(
  '%s: pieces of any size are the whole',
  pack => {
    const plan = planConversion(optionsFor(packDirectory(pack)));
    const { checkpoint } = plan;
    const bytesOf = (part: PlannedPart, weights: number): Buffer => {
      const pieces = [...piecesOf(checkpoint, part, file => checkpoint.files[file].path, weights)];
      return Buffer.concat(pieces.map(({ job }) => encodeJob(job)));
    };
    let cut = 0;
    for (const { parts } of plan.shards.flatMap(shard => shard.tensors).filter(({ layer }) => layer === null)) {
      const whole = bytesOf(parts[0], 2 ** 30);
      expect(whole.length).toBe(layoutBytes(parts[0].layout, parts[0].rows, parts[0].columns));
      expect(bytesOf(parts[0], 1)).toEqual(whole);
      cut += [...piecesOf(checkpoint, parts[0], () => '', 1)].length - 1;
    }
    expect(cut).toBeGreaterThan(50);
  },
);

test('any number of threads gives the same bytes', async () => {
  const outputs = [1, 2, 5].map(threads => optionsFor(packDirectory('qwen36'), { threads }));
  for (const options of outputs) await convertCheckpoint(options);
  const [first, ...others] = outputs.map(({ destination }) =>
    Object.fromEntries(fs.readdirSync(destination).map(name => [name, fs.readFileSync(join(destination, name))])),
  );
  for (const other of others) expect(other).toEqual(first);
});
