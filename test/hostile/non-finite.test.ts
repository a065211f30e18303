/** Weights that are not finite: the first place where it shows is named, and nothing is ever sampled from it. */

import fs from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { convertCheckpoint } from '../../src/convert/convert.ts';
import type { Activations } from '../../src/engine/api.ts';
import { score } from '../../src/engine/score.ts';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import { type TinyOptions, writeTiny } from '../fixtures/tiny.ts';
import { bytesOf, fileDirectory, withBench } from './engine-support.ts';
import { temporaryDirectory } from './fixtures.ts';

const PROMPT = bytesOf('Hi there');
const REQUEST = { temperature: 0.7, seed: 1, maxTokens: 4, ignoreEos: true };
const NAN = Number.NaN;
const INF = Number.POSITIVE_INFINITY;

const damage = (tensor: string, value: number, at = 3, more: TinyOptions = {}): TinyOptions => ({
  ...more,
  edit: (name, weights) => {
    if (name === tensor) weights[at] = value;
  },
});

const ATTENTION = 'model.layers.1.self_attn';
const DENSE: { what: string; options: TinyOptions; code?: string; message: RegExp }[] = [
  {
    what: 'NaN in the embedding of a prompt token',
    options: damage('model.embed_tokens.weight', NAN, PROMPT[0] * 64 + 3),
    message: /^the embedding of the input gave/,
  },
  ...['q_proj', 'k_proj', 'v_proj', 'o_proj', 'q_norm', 'k_norm'].map(name => ({
    what: `NaN in ${name}`,
    options: damage(`${ATTENTION}.${name}.weight`, NAN),
    message: /^the attention of layer 1 gave/,
  })),
  ...['q_proj', 'k_proj', 'v_proj', 'o_proj'].map(name => ({
    what: `infinity in ${name}`,
    options: damage(`${ATTENTION}.${name}.weight`, INF),
    message: /^the attention of layer 1 gave/,
  })),
  ...['q_proj', 'k_proj', 'v_proj'].map(name => ({
    what: `infinity in ${name} under clip_qkv`,
    options: damage(`${ATTENTION}.${name}.weight`, INF, 3, { config: { clip_qkv: 8 } }),
    message: /^the attention of layer 1 gave/,
  })),
  {
    what: 'NaN in the norm before attention',
    options: damage('model.layers.0.input_layernorm.weight', NAN),
    message: /^the attention of layer 0 gave/,
  },
  ...[NAN, INF, -INF].map(value => ({
    what: `${value} in the router`,
    options: damage('model.layers.0.mlp.gate.weight', value),
    message: /^the router of layer 0 gave/,
  })),
  {
    what: 'NaN in the norm before the experts',
    options: damage('model.layers.1.post_attention_layernorm.weight', NAN),
    message: /^the router of layer 1 gave/,
  },
  {
    what: 'NaN in the final norm',
    options: damage('model.norm.weight', NAN),
    code: 'NON_FINITE_LOGITS',
    message: /the output of every layer was/,
  },
  {
    what: 'infinity in the output matrix',
    options: damage('lm_head.weight', INF, 70 * 64),
    code: 'NON_FINITE_LOGITS',
    message: /the output of every layer was/,
  },
];

test.each(DENSE)('$what is told by name', async ({ options, code = 'NON_FINITE', message }) => {
  const model = writeTiny(temporaryDirectory(), options);
  await withBench({ model }, {}, bench => {
    for (let i = 0; i < 2; i++) {
      const run = bench.run(PROMPT, REQUEST);
      expect(run.error).toMatchObject({ name: 'NumericError', code, message: expect.stringMatching(message) });
      expect(run.error?.hint).toBeTruthy();
      expect(run.tokenIds).toEqual([]);
      expect(run.end).toBeNull();
    }
    expect(() => score(bench.runtime, bench.session, { ids: PROMPT, nll: true })).toThrow(message);
  });
});

describe.each(['q8', 'q4g64'] as const)('scales of one expert (%s)', encoding => {
  const source = fileDirectory();
  const container = join(fileDirectory(), 'container');
  let expert: number;

  beforeAll(async () => {
    writeTiny(source);
    await convertCheckpoint({ source, destination: container, experts: encoding, dense: 'bf16' });
    await withBench({ model: container }, {}, bench => {
      const { router } = score(bench.runtime, bench.session, { ids: PROMPT, router: true });
      expert = router![1].ids[router![1].ids.length - 1];
    });
  });

  /** A copy of the container in which the first scale of a part has these bfloat16 bits. */
  const withScale = (part: number, bits: number): string => {
    const model = temporaryDirectory();
    fs.cpSync(container, model, { recursive: true });
    const { files, tensors, container: index } = openCheckpoint(model);
    const name = `model.layers.1.mlp.experts.${expert}.record`;
    const { file, offset } = tensors.get(name)!;
    const codes = encoding === 'q8' ? 1024 : 512;
    const bytes = fs.readFileSync(files[file].path);
    bytes.writeUInt16LE(bits, offset + index!.experts.get(name)!.parts[part].offset + codes);
    fs.writeFileSync(files[file].path, bytes);
    return model;
  };

  // q8 tries every value in every part; the others are the same paths with another decoder or kernel
  const every = encoding === 'q8' ? [0x7fc0, 0x7f80, 0xff80] : [0x7f80];
  const cases = ['gate', 'up', 'down'].flatMap((part, index) => [
    ...every.map(value => ({ part, index, value, bits: value.toString(16), activations: 'int8' as Activations })),
    { part, index, value: 0xff80, bits: 'ff80', activations: 'exact' as Activations },
  ]);

  test.each(cases)('$bits in $part with $activations activations', async ({ index, value, activations }) => {
    await withBench({ model: withScale(index, value), activations }, {}, bench => {
      const run = bench.run(PROMPT, REQUEST);
      expect(run.error).toMatchObject({ code: 'NON_FINITE', details: { layer: 1, expert } });
      expect(run.error?.message).toContain(`layer 1, expert ${expert} `);
      expect(run.tokenIds).toEqual([]);
      expect(run.end).toBeNull();
    });
  });
});
