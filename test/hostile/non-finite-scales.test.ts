/** Scales that are not numbers, in every way to store experts: the first use names layer and expert, and only its request fails. */

import { join } from 'node:path';
import { expect, test } from 'vitest';
import { readModel } from '../../src/engine/model-files.ts';
import { score } from '../../src/engine/score.ts';
import { ENCODINGS } from '../support/encodings.ts';
import { packAsGguf } from '../support/gguf-packs.ts';
import { writeGguf } from '../support/gguf-writer.ts';
import { LoosePack } from '../support/loose-pack.ts';
import { packDirectory } from '../support/packs.ts';
import { rewriteModel } from '../support/rewrite.ts';
import { fileDirectory, startServe } from '../support/serve.ts';
import { withBench } from './engine-support.ts';
import { temporaryDirectory } from './fixtures.ts';

const PROMPT = Array.from({ length: 10 }, (_, i) => (i * 37 + 11) % 256);
/** Each reader is a thread to be started; the kernels are compared with each other elsewhere. */
const PLAIN = { kernels: 'reference', readers: 1 } as const;
const REQUEST = { temperature: 0.7, seed: 1, maxTokens: 4, ignoreEos: true };

const NAN = { F32: [0, 0, 0xc0, 0x7f], BF16: [0xc0, 0x7f], F16: [0, 0x7e], F8_E4M3: [0x7f], U8: [255] } as const;
const INFINITE = { F32: [0, 0, 0x80, 0x7f], BF16: [0x80, 0xff], F16: [0, 0x7c] } as const;
type Bits = Partial<Record<string, readonly number[]>>;

/** An expert that the prompt uses in a layer. */
function usedExpert(model: string, layer: number): Promise<number> {
  return withBench({ model, ...PLAIN }, {}, ({ runtime, session }) => {
    const { router } = score(runtime, session, { ids: PROMPT, router: true });
    return router![layer].ids[0];
  });
}

interface Damaged {
  readonly model: string;
  readonly layer: number;
  readonly expert: number | null;
  readonly kernels?: 'auto' | 'reference';
}

async function expectRefused({ model, layer, expert, kernels = 'reference' }: Damaged, what: RegExp): Promise<void> {
  await withBench({ model, ...PLAIN, kernels }, {}, bench => {
    // and again: nothing of it is kept
    for (let i = 0; i < 2; i++) {
      const run = bench.run(PROMPT, REQUEST);
      expect(run.error).toMatchObject({ code: 'NON_FINITE', message: expect.stringMatching(what) });
      expect(run.error!.details).toEqual(expert === null ? { layer } : { layer, expert });
      expect(run.error!.hint).toBeTruthy();
      expect(run.tokenIds).toEqual([]);
    }
  });
}

/** A model, and what of an expert is damaged. */
interface Place {
  readonly what: string;
  readonly source: () => string;
  /** With E for the expert: the end of the tensor's name. */
  readonly tensor: string;
  readonly value: 'NaN' | 'an infinity';
}

const root = fileDirectory();
const rewritten = new Map<string, string>();

function inEncoding(encoding: string): string {
  // of nvfp4 more global scales than are looked at before anything is loaded
  const chosen = encoding === 'nvfp4' ? /\.(?:gate|up)_proj\.weight$/ : /layers\.3\..*\.(?:gate|up)_proj\.weight$/;
  const choose = (name: string) => (chosen.test(name) ? encoding : null);
  const known =
    rewritten.get(encoding) ?? rewriteModel(packDirectory('qwen3-moe'), join(root, encoding), choose).encoded;
  rewritten.set(encoding, known);
  return known;
}

const SUFFIX: Readonly<Record<string, string>> = {
  fp8: 'weight_scale_inv',
  mxfp4: 'weight_scale',
  nvfp4: 'weight_scale',
  'int4-packed': 'weight_scale',
};

const places: Place[] = [
  ...ENCODINGS.map(({ name }) => ({
    what: `qwen3-moe as ${name}`,
    source: () => inEncoding(name),
    tensor: `experts.E.gate_proj.${SUFFIX[name] ?? 'weight.qs'}`,
    value: 'NaN' as const,
  })),
  {
    what: 'the global scale',
    source: () => inEncoding('nvfp4'),
    tensor: 'experts.E.up_proj.weight_scale_2',
    value: 'NaN',
  },
  ...[
    ['minimax-m2-fp8', 'experts.E.w2.weight_scale_inv', 'an infinity'],
    ['deepseek-v3-fp8', 'experts.E.up_proj.weight_scale_inv', 'NaN'],
    ['glm-moe-dsa-fp8', 'experts.E.gate_proj.weight', 'NaN'],
    ['qwen36-fp8', 'experts.E.down_proj.weight_scale_inv', 'an infinity'],
    ['qwen36', 'experts.gate_up_proj', 'NaN'],
    // the activation is clamped, which would make infinities ordinary numbers
    ['gpt-oss', 'experts.gate_up_proj', 'an infinity'],
    ['gpt-oss-mxfp4', 'experts.gate_up_proj_scales', 'NaN'],
    ['gpt-oss-mxfp4', 'experts.gate_up_proj_bias', 'an infinity'],
    ['gpt-oss-mxfp4', 'experts.down_proj_bias', 'NaN'],
    ['olmoe-colibri', 'experts.E.qs', 'an infinity'],
  ].map(([pack, tensor, value]) => ({
    what: pack,
    source: () => packDirectory(pack),
    tensor,
    value: value as Place['value'],
  })),
];

test.each(places)('$value in $what: $tensor', async ({ source, tensor, value }) => {
  const pack = new LoosePack(source());
  const layer = Number(pack.text.num_hidden_layers) - 1;
  const expert = await usedExpert(source(), layer);
  const ending = tensor.replace('.E.', `.${expert}.`).replaceAll('.', '\\.');
  const name = pack.name(new RegExp(`^model\\..*layers\\.${layer}\\..*${ending}$`));
  const { dtype, shape } = pack.get(name);
  const bytes = pack.own(name);
  // of all experts, or its own
  const at = tensor.includes('.E.') ? 0 : expert * (bytes.length / shape[0]);
  bytes.set(((value === 'NaN' ? NAN : INFINITE) as Bits)[dtype]!, at);
  const model = pack.write(join(temporaryDirectory(), 'model'));
  const what = new RegExp(`^layer ${layer}, expert ${expert} gave`);
  await expectRefused({ model, layer, expert, kernels: 'auto' }, what);
});

test('the global scale of one expert is its own reciprocal, or infinite: only its request fails, by name', async () => {
  const expert = await usedExpert(inEncoding('nvfp4'), 3);
  for (const bits of [INFINITE.F32, [0, 0, 0, 0x40]]) {
    const pack = new LoosePack(inEncoding('nvfp4'));
    pack.own(`model.layers.3.mlp.experts.${expert}.up_proj.weight_scale_2`).set(bits);
    const model = pack.write(join(temporaryDirectory(), 'model'));
    // beyond those that are looked at before anything is loaded
    expect(readModel({ model }).shape.layers).toBe(4);
    await withBench({ model, ...PLAIN }, {}, bench => {
      const { error } = bench.run(PROMPT, REQUEST);
      expect(error?.message).toMatch(new RegExp(`^layer 3 expert ${expert}: .*global scale.*reciprocal`));
    });
  }
});

/** Names after the layer; where an infinity would become an ordinary number again, it is told too. */
const SHARED: readonly (readonly [pack: string, tensor: string, bits: Bits, what: RegExp])[] = [
  ['glm4-moe', 'mlp.shared_experts.down_proj.weight', NAN, /^the shared expert of layer 2 gave/],
  ['qwen36', 'mlp.shared_expert.up_proj.weight', NAN, /^the shared expert of layer 2 gave/],
  ['qwen36', 'mlp.shared_expert_gate.weight', INFINITE, /^the gate of the shared expert of layer 2 gave/],
  ['qwen36', 'linear_attn.in_proj_qkv.weight', NAN, /^the linear attention of layer 2 gave/],
  ['qwen36', 'linear_attn.in_proj_b.weight', INFINITE, /^the gates of the linear attention of layer 2 gave/],
  ['qwen36', 'linear_attn.dt_bias', INFINITE, /^the rates of the linear attention of layer 2 gave/],
  ['deepseek-v3-fp8', 'self_attn.kv_b_proj.weight_scale_inv', NAN, /^the attention of layer 2 gave/],
  ['glm-moe-dsa-fp8', 'self_attn.q_a_proj.weight_scale_inv', NAN, /^the attention of layer 2 gave/],
  ['gpt-oss', 'self_attn.sinks', NAN, /^the attention of layer 2 gave/],
  ['gpt-oss', 'mlp.router.bias', NAN, /^the router of layer 2 gave/],
  ['minimax-m2-fp8', 'block_sparse_moe.e_score_correction_bias', NAN, /^the bias of the router of layer 2 gave/],
  ['deepseek-v3-fp8', 'mlp.gate.e_score_correction_bias', INFINITE, /^the bias of the router of layer 2 gave/],
];

test.each(SHARED)('what every token uses, in %s: %s', async (name, tensor, bits, what) => {
  const pack = new LoosePack(packDirectory(name));
  const full = pack.name(new RegExp(`^model\\..*layers\\.2\\.${tensor.replaceAll('.', '\\.')}$`));
  pack.own(full).set(bits[pack.get(full).dtype]!);
  const model = pack.write(join(temporaryDirectory(), 'model'));
  await expectRefused({ model, layer: 2, expert: null }, what);
});

test('the gate of attention', async () => {
  const pack = new LoosePack(packDirectory('qwen36'));
  const name = pack.name(/^model\..*layers\.3\.self_attn\.q_proj\.weight$/);
  // per head a query of 32 rows, then its gate
  pack.own(name).set(INFINITE.BF16, 40 * 64 * 2);
  const model = pack.write(join(temporaryDirectory(), 'model'));
  await expectRefused({ model, layer: 3, expert: null }, /^the gate of the attention of layer 3 gave/);
});

test.each(['Q8_0', 'Q4_0'] as const)('the scale of a block of a GGUF file: %s', async dtype => {
  // rows of experts are whole blocks in this one
  const file = packAsGguf(packDirectory('qwen3-moe'), 'qwen3moe', {
    dtype: (_, columns) => (columns % 32 ? 'F16' : dtype),
  });
  const whole = writeGguf(join(temporaryDirectory(), 'model.gguf'), file);
  const expert = await usedExpert(whole, 3);
  for (const bits of [NAN.F16, INFINITE.F16]) {
    const { bytes } = file.tensors.find(({ name }) => name === 'blk.3.ffn_gate_exps.weight')!;
    const at = expert * (bytes.length / 16);
    const before = bytes.slice(at, at + 2);
    bytes.set(bits, at);
    const model = writeGguf(join(temporaryDirectory(), 'model.gguf'), file);
    bytes.set(before, at);
    await expectRefused({ model, layer: 3, expert }, new RegExp(`^layer 3, expert ${expert} gave`));
  }
});

test('a server answers what does not use the expert, before and after', async () => {
  const source = packDirectory('qwen3-moe-fp8');
  const texts = ['a', 'the', '0 1 2', 'Hello', 'x = y;'];
  const probe = await startServe({ model: source });
  const bodies = texts.map(prompt => ({ prompt, max_tokens: 1, temperature: 0 }));
  const answers = await Promise.all(bodies.map(body => probe.post('/v1/completions', body)));
  const ids = await Promise.all(texts.map(async content => (await probe.post('/tokenize', { content })).body.tokens));
  await probe.stop();
  const used = await withBench({ model: source, ...PLAIN }, {}, ({ runtime, session }) =>
    ids.map((tokens: number[]) => {
      session.truncate(0);
      return new Set(score(runtime, session, { ids: tokens, router: true }).router!.at(-1)!.ids);
    }),
  );
  // an expert of the last layer that one text uses and another one does not
  const pairs = used.flatMap((a, i) => used.map((b, j) => ({ i, j, expert: [...a].find(expert => !b.has(expert)) })));
  const { i, j, expert } = pairs.find(pair => pair.expert !== undefined)!;
  const pack = new LoosePack(source);
  pack.own(pack.name(new RegExp(`layers\\.3\\..*experts\\.${expert}\\.up_proj\\.weight_scale_inv$`))).set(NAN.BF16);
  const served = await startServe({ model: pack.write(join(temporaryDirectory(), 'model')) });
  for (let round = 0; round < 2; round++) {
    const failed = await served.post('/v1/completions', bodies[i]);
    expect(failed.status).toBe(500);
    expect(failed.body.error.message).toContain(`layer 3, expert ${expert} gave a value that is not finite`);
    const good = await served.post('/v1/completions', bodies[j]);
    expect(good.status).toBe(200);
    expect(good.body.choices[0].text).toBe(answers[j].body.choices[0].text);
  }
  expect((await served.get('/health')).status).toBe(200);
  expect(await served.stop()).toMatchObject({ code: 0 });
});
