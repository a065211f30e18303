/** From a checkpoint's tensors to what is loaded: nothing missing, nothing twice, large matrices in pieces. */

import { describe, expect, test } from 'vitest';
import { fake, refusal } from '../../test/support/fake-checkpoint.ts';
import { ConfigError } from '../common/errors.ts';
import type { Dtype } from '../formats/checkpoint-types.ts';
import { layoutBytes } from '../quant/layouts.ts';
import { olmoe } from './olmoe.ts';
import { resolveRecords } from './records.ts';

const CONFIG = {
  model_type: 'olmoe',
  hidden_size: 64,
  intermediate_size: 32,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_experts: 3,
  num_experts_per_tok: 2,
  vocab_size: 100,
  max_position_embeddings: 128,
};

const PARTS = { mtp: false };

type Entries = Record<string, [Dtype, number[]]>;

/** All tensors of a model as config says, in one dtype. */
function entries(config: Record<string, unknown> = CONFIG): Entries {
  const table = olmoe.tensors(olmoe.parseConfig(config), PARTS);
  const result: Entries = {};
  for (const { name, role, rows, columns } of table.dense) {
    result[name] = ['BF16', role === 'norm' ? [columns] : [rows, columns]];
  }
  for (const { forms } of table.experts) {
    const { gate, up, down } = forms[0];
    result[gate.name] = ['BF16', [32, 64]];
    result[up.name] = ['BF16', [32, 64]];
    result[down.name] = ['BF16', [64, 32]];
  }
  return result;
}

function resolve(tensors: Entries, config: Record<string, unknown> = CONFIG, maxPieceBytes = 1e9) {
  const parsed = olmoe.parseConfig(config);
  return resolveRecords(fake(tensors), olmoe.tensors(parsed, PARTS), olmoe.shape(parsed, PARTS), maxPieceBytes);
}

test('one record per resident tensor and per expert, experts of a layer together', () => {
  const { records, dense, firstExpert } = resolve(entries());
  expect(dense.size).toBe(3 + 2 * 9);
  expect(records).toHaveLength(dense.size + 6);
  expect(firstExpert).toEqual([21, 24]);
  expect(records.slice(21).map(record => record.name)).toEqual(
    [0, 1].flatMap(layer => [0, 1, 2].map(expert => `layer ${layer} expert ${expert}`)),
  );
  for (const [name, indices] of dense) expect(indices.map(i => records[i].name)).toEqual([name]);
});

describe('large matrices', () => {
  test('are cut into pieces that together are the whole, none larger than allowed', () => {
    const whole = resolve(entries());
    const most = 30 * 64 * 2;
    const { records, dense } = resolve(entries(), CONFIG, most);
    for (const [name, indices] of dense) {
      if (name.includes('norm')) continue; // packed, so never cut
      const pieces = indices.map(i => records[i]);
      const [original] = whole.dense.get(name)!.map(i => whole.records[i]);
      expect(pieces.reduce((sum, piece) => sum + piece.parts[0].rows, 0)).toBe(original.parts[0].rows);
      let at = original.extents[0].offset;
      for (const { extents, parts } of pieces) {
        expect(extents).toEqual([{ file: 0, offset: at, bytes: layoutBytes(parts[0].layout, parts[0].rows, 64) }]);
        at += extents[0].bytes;
        if (pieces.length > 1) expect(extents[0].bytes).toBeLessThanOrEqual(most);
      }
      expect(at).toBe(original.extents[0].offset + original.extents[0].bytes);
    }
    expect(dense.get('model.embed_tokens.weight')).toHaveLength(4);
    expect(records[dense.get('model.embed_tokens.weight')![3]].name).toBe('model.embed_tokens.weight rows 90-99');
  });

  test('in tiles are cut between panels of 16 rows', () => {
    const bytes = layoutBytes('q8g64', 100, 64);
    const name = 'model.embed_tokens.weight';
    const matrices = new Map([[name, { encoding: 'q8g64', rows: 100, columns: 64 }]]);
    const config = olmoe.parseConfig(CONFIG);
    const checkpoint = fake({ ...entries(), [name]: ['U8', [bytes]] }, { matrices });
    // room for two panels and a half
    const most = layoutBytes('q8g64', 40, 64) - 1;
    const { records, dense } = resolveRecords(
      checkpoint,
      olmoe.tensors(config, PARTS),
      olmoe.shape(config, PARTS),
      most,
    );
    const pieces = dense.get(name)!.map(i => records[i]);
    expect(pieces.map(piece => piece.parts[0].rows)).toEqual([32, 32, 32, 4]);
    const panel = layoutBytes('q8g64', 16, 64);
    const start = checkpoint.tensors.get(name)!.offset;
    expect(pieces.map(piece => piece.extents[0].offset - start)).toEqual([0, 2 * panel, 4 * panel, 6 * panel]);
    expect(pieces.map(piece => piece.extents[0].bytes)).toEqual([2 * panel, 2 * panel, 2 * panel, panel]);
  });

  test('that are packed are cut too, so that readers need little staging', () => {
    const name = 'model.embed_tokens.weight';
    const vocabulary = 600_000;
    const config = { ...CONFIG, vocab_size: vocabulary };
    const tensors: Entries = {
      ...entries(config),
      [name]: ['U8', [vocabulary, 64]],
      [`${name}.qs`]: ['F32', [vocabulary]],
    };
    const { records, dense } = resolve(tensors, config);
    const pieces = dense.get(name)!.map(i => records[i]);
    const rows = pieces.map(piece => piece.parts[0].rows);
    expect(rows).toHaveLength(3);
    expect(rows.reduce((sum, n) => sum + n, 0)).toBe(vocabulary);
    for (const n of rows.slice(0, -1)) expect(n % 16).toBe(0);
    let first = 0;
    for (const piece of pieces) {
      expect(piece.extents.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThanOrEqual(2 ** 24);
      expect(piece.packs[0]).toMatchObject({ packer: 'int8-row', rows: piece.parts[0].rows });
      expect(piece.name).toBe(`${name} rows ${first}-${first + piece.parts[0].rows - 1}`);
      first += piece.parts[0].rows;
    }
    // a conversion asks for whole tensors
    const whole = resolve(tensors, config, Number.POSITIVE_INFINITY);
    expect(whole.dense.get(name)).toHaveLength(1);
  });

  test('are cut at whole rows even when one is larger than allowed', () => {
    const { dense } = resolve(entries(), CONFIG, 10);
    expect(dense.get('lm_head.weight')).toHaveLength(100);
  });
});

describe('the census', () => {
  test.each(['model.norm.weight', 'model.layers.1.mlp.gate.weight', 'model.layers.0.mlp.experts.2.up_proj.weight'])(
    '%s is missed by name',
    name => {
      const { [name]: _, ...rest } = entries();
      const error = refusal(() => resolve(rest));
      expect(error.code).toBe('TENSORS_MISSING');
      expect(error.details).toMatchObject({ missing: [name], count: 1 });
      expect(error.message).toContain(name);
    },
  );

  test('weights for two of four layers: told at once, with the layers', () => {
    const error = refusal(() => resolve(entries(), { ...CONFIG, num_hidden_layers: 4 }));
    expect(error.code).toBe('TENSORS_MISSING');
    expect(error.message).toMatch(/absent layers: 2-3 \(2 of 4\)/);
    expect(error.details.count).toBe(2 * (9 + 9));
  });

  test.each([
    { config: 5, stored: 3 },
    { config: 2, stored: 3 },
  ])('config.json says $config experts, the files have $stored: all three numbers are told', ({ config, stored }) => {
    const attempt = () => resolve(entries(), { ...CONFIG, num_experts: config });
    expect(attempt).toThrow(ConfigError);
    expect(attempt).toThrow(
      expect.objectContaining({
        code: 'EXPERT_COUNT_MISMATCH',
        details: { layer: 0, config, routerRows: stored, tensors: stored },
      }),
    );
  });

  test('a router of another size than its experts', () => {
    const tensors = entries();
    tensors['model.layers.1.mlp.gate.weight'] = ['BF16', [4, 64]];
    expect(() => resolve(tensors)).toThrow(
      expect.objectContaining({ details: { layer: 1, config: 3, routerRows: 4, tensors: 3 } }),
    );
  });

  test('known spares are left out', () => {
    const spare: Entries = { 'model.layers.0.self_attn.rotary_emb.inv_freq': ['F32', [8]] };
    expect(resolve({ ...entries(), ...spare })).toEqual(resolve(entries()));
  });

  test.each(['self_attn.q_proj.bias', 'mlp.shared_expert.up_proj.weight', 'mlp.gate.weight.qs.qs'])(
    'a tensor %s that no forward pass uses is another model',
    name => {
      const full = `model.layers.0.${name}`;
      const error = refusal(() => resolve({ ...entries(), [full]: ['BF16', [64]] }));
      expect(error.code).toBe('UNKNOWN_TENSORS');
      expect(error.message).toContain(`holds 1 tensor that its config.json has no use for: "${full}"`);
      expect(error.details).toEqual({ count: 1, tensors: [full] });
    },
  );

  test('more layers than config.json says is another model', () => {
    const error = refusal(() => resolve(entries(), { ...CONFIG, num_hidden_layers: 1 }));
    expect(error.code).toBe('UNKNOWN_TENSORS');
    expect(error.message).toMatch(/holds 18 tensors .*"model\.layers\.1\..* and 13 more/);
  });
});

test.each([
  { name: 'model.layers.0.mlp.gate.weight', entry: ['I8', [3, 64]], code: 'TENSOR_WRONG_DTYPE' },
  { name: 'model.norm.weight', entry: ['BF16', [63]], code: 'TENSOR_WRONG_SHAPE' },
  { name: 'model.norm.weight', entry: ['BF16', [1, 64]], code: 'TENSOR_WRONG_SHAPE' },
  { name: 'lm_head.weight', entry: ['BF16', [64, 100]], code: 'TENSOR_WRONG_SHAPE' },
  { name: 'model.layers.1.mlp.experts.0.down_proj.weight', entry: ['BF16', [32, 64]], code: 'TENSOR_WRONG_SHAPE' },
] as { name: string; entry: [Dtype, number[]]; code: string }[])('$name as $entry is refused: $code', row => {
  const error = refusal(() => resolve({ ...entries(), [row.name]: row.entry }));
  expect(error.code).toBe(row.code);
  expect(error.message).toContain(row.name);
});
