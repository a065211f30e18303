/** All a family needs and nothing else: joint tensors, several forms, scales, prediction heads. */

import { describe, expect, test } from 'vitest';
import { fake, refusal } from '../../test/support/fake-checkpoint.ts';
import { ConfigError } from '../common/errors.ts';
import type { Dtype } from '../formats/checkpoint-types.ts';
import { requireComplete, requireKnown } from './census.ts';
import { expertNames, fusedForm, separateForm } from './expert-forms.ts';
import type { DenseTensor, ModelShape, TensorTable } from './family.ts';

type Entries = Record<string, [Dtype, number[]]>;

const EXPERTS = 4;
const LAYERS = ['model.layers.0', 'mtp.layers.0'];
/** The second layer is that of a prediction head: its number is not in its names. */
const shape = { experts: EXPERTS, moeLayers: [0, 1] } as unknown as ModelShape;

function tableOf(experts = EXPERTS): TensorTable {
  const dense: DenseTensor[] = LAYERS.flatMap(p => [
    { name: `${p}.gate.weight`, role: 'router', rows: experts, columns: 32 },
    { name: `${p}.keys`, from: `${p}.kv_b.weight`, role: 'latent', rows: 8, columns: 32 },
    { name: `${p}.values`, from: `${p}.kv_b.weight`, role: 'latent', rows: 8, columns: 32 },
  ]);
  const names = LAYERS.flatMap((p, layer) =>
    Array.from({ length: experts }, (_, e) =>
      expertNames(layer, e, `${p}.experts`, () => [
        separateForm(`${p}.experts`, e),
        fusedForm(`${p}.experts`, e, experts, 16),
      ]),
    ),
  );
  return { dense, experts: names, hiddenSize: 32, expertWidth: 16, ignored: [/^vision\./] };
}

const table = tableOf();

function rest(routers: number[] = [EXPERTS, EXPERTS]): Entries {
  const entries: Entries = {};
  for (const [i, p] of LAYERS.entries()) {
    entries[`${p}.gate.weight`] = ['BF16', [routers[i], 32]];
    entries[`${p}.kv_b.weight`] = ['F8_E4M3', [16, 32]];
    entries[`${p}.kv_b.weight_scale_inv`] = ['F32', [1, 1]];
  }
  return entries;
}

function separate(count: number, of = LAYERS, suffix = '', dtype: Dtype = 'BF16'): Entries {
  const entries: Entries = {};
  for (const p of of) {
    for (let e = 0; e < count; e++) {
      for (const role of ['gate', 'up', 'down'])
        entries[`${p}.experts.${e}.${role}_proj.weight${suffix}`] = [dtype, [1]];
    }
  }
  return entries;
}

function joint(count: number, of = LAYERS, ending = ''): Entries {
  const entries: Entries = {};
  for (const p of of) {
    for (const role of ['gate_up', 'down']) entries[`${p}.experts.${role}_proj${ending}`] = ['U8', [count, 32, 32]];
  }
  return entries;
}

const complete = (entries: Entries, of = table, sizes = shape) => requireComplete(fake(entries), of, sizes);
const known = (entries: Entries) => requireKnown(fake(entries), table);

describe('complete', () => {
  test.each<[string, Entries]>([
    ['experts apart', separate(EXPERTS)],
    ['experts together', joint(EXPERTS)],
    ['apart here, together there', { ...separate(EXPERTS, [LAYERS[0]]), ...joint(EXPERTS, [LAYERS[1]]) }],
    ['packed under another name', separate(EXPERTS, LAYERS, '_packed', 'U8')],
    ['together in blocks', joint(EXPERTS, LAYERS, '_blocks')],
  ])('%s', (_, experts) => {
    expect(() => complete({ ...rest(), ...experts })).not.toThrow();
  });

  test.each<[string, Entries, number]>([
    ['apart', separate(3), 3],
    ['together', joint(3), 3],
    ['in blocks', joint(6, LAYERS, '_blocks'), 6],
    ['packed', separate(5, LAYERS, '_packed', 'U8'), 5],
  ])('another number of experts than config.json says: %s', (_, experts, tensors) => {
    const attempt = () => complete({ ...rest(), ...experts });
    expect(attempt).toThrow(ConfigError);
    expect(attempt).toThrow(
      expect.objectContaining({
        code: 'EXPERT_COUNT_MISMATCH',
        details: { layer: 0, config: EXPERTS, routerRows: EXPERTS, tensors },
      }),
    );
  });

  test('pruned experts: router and tensors agree, config.json still has the old number', () => {
    const pruned = { ...rest([3, 3]), ...separate(3) };
    expect(() => complete(pruned)).toThrow(
      /layer 0 has 4 experts by config\.json, 3 router rows and 3 experts with tensors/,
    );
    expect(() => complete(pruned, tableOf(3), { ...shape, experts: 3 })).not.toThrow();
  });

  test('the layer of a prediction head is told by its number', () => {
    expect(() => complete({ ...rest([4, 3]), ...separate(EXPERTS) })).toThrow(
      expect.objectContaining({ details: { layer: 1, config: 4, routerRows: 3, tensors: 4 } }),
    );
  });

  test('what is absent is named, joint tensors and shared sources once', () => {
    const { [`${LAYERS[0]}.kv_b.weight`]: _, ...lacking } = { ...rest(), ...joint(EXPERTS) };
    const { [`${LAYERS[1]}.experts.down_proj`]: __, ...more } = lacking;
    const error = refusal(() => complete(more));
    expect(error.code).toBe('TENSORS_MISSING');
    expect(error.details).toMatchObject({
      missing: [`${LAYERS[0]}.kv_b.weight`, `${LAYERS[1]}.experts.down_proj`],
      count: 2,
    });
  });

  test('scales do not stand for their matrix', () => {
    const name = `${LAYERS[0]}.experts.2.up_proj.weight`;
    const { [name]: _, ...lacking } = {
      ...rest(),
      ...separate(EXPERTS),
      [`${name}_scale_inv`]: ['F32', [1]],
    } as Entries;
    expect(refusal(() => complete(lacking)).details).toMatchObject({ missing: [name], count: 1 });
  });
});

describe('nothing else', () => {
  const w = `${LAYERS[0]}.experts.1.up_proj.weight`;
  test.each([
    `${w}_scale_inv`,
    `${w}_scale`,
    `${w}_scale_2`,
    `${w}_packed`,
    `${w}_shape`,
    `${w}.qs`,
    `${LAYERS[0]}.experts.1.up_proj.input_scale`,
    `${LAYERS[0]}.experts.1.up_proj.scale`,
    `${LAYERS[0]}.experts.gate_up_proj_blocks`,
    `${LAYERS[1]}.kv_b.weight_scale_inv`,
    'vision.patch.weight',
    'vision.patch.weight_scale_inv',
  ])('%s is known', name => {
    const entries = { ...rest(), [w]: ['BF16', [1]], [name]: ['F32', [1]] } as Entries;
    expect(() => known(entries)).not.toThrow();
  });

  test('scales of a matrix that is not there are not known', () => {
    const error = refusal(() => known({ ...rest(), [`${w}_scale_inv`]: ['F32', [1]] }));
    expect(error.details).toEqual({ count: 1, tensors: [`${w}_scale_inv`] });
  });

  test.each([
    `${LAYERS[0]}.experts.4.up_proj.weight`,
    `${LAYERS[0]}.experts.4.up_proj.weight_scale_inv`,
    `${LAYERS[0]}.experts.1.up_proj.bias`,
    `${LAYERS[0]}.keys`,
    `${LAYERS[0]}.gate.scale_scale`,
    'model.layers.1.gate.weight',
    'weight_scale',
  ])('%s is not', name => {
    const error = refusal(() => known({ ...rest(), [name]: ['F32', [1]] }));
    expect(error.code).toBe('UNKNOWN_TENSORS');
    expect(error.details).toEqual({ count: 1, tensors: [name] });
  });
});
