/** Checkpoints of every family whose tensors and config do not belong together: each is refused by name, from headers alone. */

import { describe, expect, test } from 'vitest';
import type { SafetensorsDtype } from '../../src/formats/checkpoint-types.ts';
import type { LoosePack } from '../support/loose-pack.ts';
import {
  expertField,
  FAMILY_PACKS,
  gateOf,
  inLast,
  isSeparate,
  lastLayer,
  layersOf,
  loose,
  prune,
  ROUTER,
  readPack,
  refusalOfPack,
} from './pack-support.ts';

/** Lists of config.json that have an entry for each layer. */
const LISTS = ['layer_types', 'mlp_layer_types', 'indexer_types', 'attn_type_list'];

function setLayers(pack: LoosePack, layers: number): void {
  for (const field of LISTS) {
    const list = pack.text[field];
    if (Array.isArray(list)) pack.text[field] = Array.from({ length: layers }, (_, i) => list[i] ?? list.at(-1));
  }
  pack.text.num_hidden_layers = layers;
}

/** Tensors of a layer of the main model. */
function layer(pack: LoosePack, number: number): RegExp {
  const prefix = pack.names(/^model\.language_model\./).length > 0 ? 'model.language_model' : 'model';
  return new RegExp(`^${prefix.replaceAll('.', '\\.')}\\.layers\\.${number}\\.`);
}

const counts = (config: number, router: number, tensors: number) =>
  `has ${config} experts by config.json, ${router} router rows and ${tensors} experts with tensors`;

test.each(FAMILY_PACKS)('%s is read as it is', name => {
  expect(readPack(loose(name)).shape.experts).toBe(16);
});

describe.each(FAMILY_PACKS)('layers of %s', name => {
  test('one is missing', () => {
    const pack = loose(name);
    pack.remove(layer(pack, 2));
    const error = refusalOfPack(pack);
    expect(error).toMatchObject({ code: 'TENSORS_MISSING', details: { layers: [2] } });
    expect(error.message).toMatch(/absent layers: 2 \(1 of \d\)/);
  });

  test('config.json counts one more', () => {
    const pack = loose(name);
    setLayers(pack, layersOf(pack) + 1);
    const error = refusalOfPack(pack);
    expect(error.message).toContain(`layers.${lastLayer(pack)}.`);
    expect(error.code).toMatch(/^(?:TENSORS_MISSING|UNKNOWN_TENSORS)$/);
  });

  test('config.json counts one less', () => {
    const pack = loose(name);
    setLayers(pack, layersOf(pack) - 1);
    expect(refusalOfPack(pack).code).toBe('UNKNOWN_TENSORS');
    // nor is the last one taken for the prediction head where there is none
    pack.remove(layer(pack, lastLayer(pack) + 2), /^mtp\./);
    const error = refusalOfPack(pack);
    expect(error.code).toBe('UNKNOWN_TENSORS');
    expect(error.message).toContain(`layers.${lastLayer(pack) + 1}.`);
  });
});

describe.each(FAMILY_PACKS)('experts of %s', name => {
  const wrongCount = (pack: LoosePack, message: string) => {
    const error = refusalOfPack(pack);
    expect(error.code).toBe('EXPERT_COUNT_MISMATCH');
    expect(error.message).toContain(message);
  };

  test('config.json counts fewer, or more', () => {
    for (const count of [8, 15, 17, 64]) {
      const pack = loose(name);
      const groups = Number(pack.text.n_group ?? 1);
      if (count % groups !== 0) continue;
      pack.text[expertField(pack)] = count;
      wrongCount(pack, counts(count, 16, 16));
    }
  });

  test('pruned in some of the three places', () => {
    const pruned = (parts: Parameters<typeof prune>[1]) => {
      const pack = loose(name);
      prune(pack, parts);
      return pack;
    };
    wrongCount(pruned({ config: false, bias: false }), counts(16, 8, 8));
    wrongCount(pruned({ config: false, experts: false, bias: false }), counts(16, 8, 16));
    wrongCount(pruned({ config: false, router: false, bias: false }), counts(16, 16, 8));
    wrongCount(pruned({ experts: false }), counts(8, 8, 16));
    wrongCount(pruned({ router: false }), counts(8, 16, 8));
    const whole = pruned({});
    expect(readPack(whole).shape.experts).toBe(8);
    const bias = whole.names(/(?:e_score_correction_bias|router\.bias)$/);
    if (bias.length === 0) return;
    const error = refusalOfPack(pruned({ bias: false }));
    expect(error.code).toBe('TENSOR_WRONG_SHAPE');
    expect(error.message).toContain('has shape [16], expected [8]');
  });

  test('pruned in one layer only', () => {
    const pack = loose(name);
    for (const router of pack.names(inLast(pack, ROUTER))) pack.cut(router, 8);
    wrongCount(pack, `layer ${lastLayer(pack)} ${counts(16, 8, 16)}`);
  });

  test('a token uses more than there are', () => {
    const pack = loose(name);
    pack.text.num_experts_per_tok = 17;
    const error = refusalOfPack(pack);
    expect(error.code).toBe('BAD_CONFIG');
    expect(error.details.path).toMatch(/(?:^|\.)num_experts_per_tok$/);
    expect(error.message).toContain('got 17');
  });

  test('one, or one matrix of one, is missing', () => {
    const pack = loose(name);
    if (isSeparate(pack)) {
      pack.remove(inLast(pack, 'experts\\.3\\.'));
      wrongCount(pack, counts(16, 16, 15));
    }
    const other = loose(name);
    const down =
      other.names(inLast(other, 'experts\\.(?:5\\.)?(?:down_proj|w2)(?:\\.weight|_blocks|)$'))[0] ?? gateOf(other);
    other.tensors.delete(down);
    const error = refusalOfPack(other);
    expect(error.code).toMatch(/^(?:TENSORS_MISSING|TENSOR_MISSING|EXPERT_COUNT_MISMATCH)$/);
    expect(error.message).toMatch(
      new RegExp(`layer ${lastLayer(other)} |layers\\.${lastLayer(other)}\\.|: ${lastLayer(other)} lacks 1`),
    );
  });

  test('matrices of another shape', () => {
    for (const change of [
      (shape: readonly number[]) => [...shape].reverse(),
      (shape: readonly number[]) => shape.map((size, i) => (i === 0 ? size + 1 : size)),
      (shape: readonly number[]) => shape.map((size, i) => (i === shape.length - 1 ? size + 8 : size)),
      (shape: readonly number[]) => [1, ...shape],
      (shape: readonly number[]) => [shape.reduce((a, b) => a * b, 1), 1],
    ]) {
      const pack = loose(name);
      const gate = gateOf(pack);
      const { dtype, shape } = pack.get(gate);
      const changed = change(shape);
      // a square matrix, or a list
      if (changed.join() === shape.join()) continue;
      pack.put(gate, dtype, changed);
      const error = refusalOfPack(pack);
      expect(error.code).toMatch(/^(?:TENSOR_WRONG_SHAPE|ENCODING_UNKNOWN|EXPERT_COUNT_MISMATCH)$/);
      if (error.code !== 'EXPERT_COUNT_MISMATCH') expect(error.details.tensor).toBe(gate);
    }
  });

  test.each(['F64', 'I64', 'I32', 'BOOL', 'F8_E5M2'] satisfies SafetensorsDtype[])('a matrix as %s', dtype => {
    const pack = loose(name);
    const gate = gateOf(pack);
    pack.put(gate, dtype, pack.get(gate).shape);
    const error = refusalOfPack(pack);
    expect(error.code).toMatch(/^(?:ENCODING_UNSUPPORTED|TENSOR_WRONG_DTYPE)$/);
    expect(error.details.tensor).toBe(gate);
    expect(error.message).toContain(dtype);
  });
});

describe.each(FAMILY_PACKS)('other tensors of %s', name => {
  const cases: { what: string; tensor: string; dtype?: SafetensorsDtype; more?: number; code: RegExp }[] = [
    { what: 'a norm as float8', tensor: 'input_layernorm\\.weight$', dtype: 'F8_E4M3', code: /^ENCODING_UNSUPPORTED$/ },
    { what: 'a norm that is too long', tensor: 'input_layernorm\\.weight$', more: 1, code: /^TENSOR_WRONG_SHAPE$/ },
    { what: 'a router of bytes', tensor: ROUTER, dtype: 'U8', code: /^TENSOR_WRONG_DTYPE$/ },
    { what: 'a router of another width', tensor: ROUTER, more: 1, code: /^TENSOR_WRONG_SHAPE$/ },
  ];
  test.each(cases)('$what', ({ tensor, dtype, more = 0, code }) => {
    const pack = loose(name);
    const changed = pack.name(inLast(pack, tensor));
    const { dtype: own, shape } = pack.get(changed);
    pack.put(changed, dtype ?? own, [...shape.slice(0, -1), shape[shape.length - 1] + more]);
    const error = refusalOfPack(pack);
    expect(error.code).toMatch(code);
    expect(error.details.tensor).toBe(changed);
  });

  test('one that nothing needs', () => {
    const pack = loose(name);
    pack.put(
      pack.name(inLast(pack, 'self_attn\\.o_proj\\.weight$')).replace('o_proj.weight', 'extra.weight'),
      'BF16',
      [4],
    );
    const error = refusalOfPack(pack);
    expect(error.code).toBe('UNKNOWN_TENSORS');
    expect(error.message).toContain('self_attn.extra.weight');
  });

  test('the output matrix is absent, and the embedding is not said to be it', () => {
    const pack = loose(name);
    pack.remove(/^lm_head\./);
    const error = refusalOfPack(pack);
    expect(error.code).toBe('TENSORS_MISSING');
    expect(error.message).toContain('outside layers: "lm_head.weight"');
    pack.text.tie_word_embeddings = true;
    if (pack.text !== pack.config) {
      // the two places may not say different things
      expect(refusalOfPack(pack).details.path).toBe('tie_word_embeddings');
      pack.config.tie_word_embeddings = true;
    }
    expect(readPack(pack).records.dense.has('lm_head.weight')).toBe(false);
  });

  test('a vocabulary of another size', () => {
    const pack = loose(name);
    pack.text.vocab_size = 500;
    expect(refusalOfPack(pack).message).toMatch(/embed_tokens.*512.*500/);
  });
});
