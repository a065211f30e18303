import { basename } from 'node:path';
import { expect, test } from 'vitest';
import { fake } from '../../test/support/fake-checkpoint.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import type { Parts } from '../models/family.ts';
import type { EngineOptions } from './api.ts';
import { fingerprint, modelIdentity } from './identity.ts';
import type { ModelFiles } from './model-files.ts';

const MODEL = fake({ a: ['F32', [4]], b: ['BF16', [2, 2]] }, null, { hidden_size: 4 });
const CONTAINER = fake({ a: ['F32', [4]] }, { sha256: new Map([['a', '00']]) });

function of(checkpoint: Checkpoint, options: Partial<EngineOptions> = {}, parts: Parts = { mtp: false }): string {
  return fingerprint({ checkpoint, parts } as ModelFiles, { model: 'm', ...options });
}

function touched(checkpoint: Checkpoint): Checkpoint {
  return { ...checkpoint, files: checkpoint.files.map(file => ({ ...file, mtimeMs: 1 })) };
}

test('settings that change no number leave it as it is', () => {
  expect(of(MODEL)).toMatch(/^[0-9a-f]{64}$/);
  expect(of(MODEL, { threads: 2, chunk: 1, slots: 4, expertSlots: 9, kv: 'f32', activations: 'int8' })).toBe(of(MODEL));
});

test('what changes numbers, and which parts of the model are there, changes it', () => {
  const quantised = { ...MODEL, config: { ...MODEL.config, quantization_config: { weight_block_size: [128, 128] } } };
  const others = [
    of(MODEL, { kv: 'bf16' }),
    of(MODEL, { activations: 'exact' }),
    of(MODEL, {}, { mtp: true }),
    of(MODEL, {}, { mtp: false, indexer: false }),
    of(quantised),
    of(fake({ a: ['F32', [4]], b: ['F16', [2, 2]] }, null, { hidden_size: 4 })),
    of(fake({ b: ['BF16', [2, 2]], a: ['F32', [4]] }, null, { hidden_size: 4 })),
    of(touched(MODEL)),
  ];
  expect(new Set([of(MODEL), ...others]).size).toBe(others.length + 1);
});

test('a container is known by its hashes, whenever it was written', () => {
  expect(of(touched(CONTAINER))).toBe(of(CONTAINER));
  const other = fake({ a: ['F32', [4]] }, { sha256: new Map([['a', '01']]) });
  expect(of(other)).not.toBe(of(CONTAINER));
});

test('a model is the same model wherever and whenever its files were written', () => {
  const moved = {
    ...touched(MODEL),
    files: MODEL.files.map(file => ({ ...file, path: `/elsewhere/${basename(file.path)}` })),
  };
  expect(modelIdentity({ checkpoint: moved })).toBe(modelIdentity({ checkpoint: MODEL }));
  const others = [
    { ...MODEL, config: { hidden_size: 8 } },
    fake({ a: ['F32', [4]], b: ['BF16', [4]] }, null, { hidden_size: 4 }),
    CONTAINER,
    fake({ a: ['F32', [4]] }, { sha256: new Map([['a', '01']]) }),
  ];
  expect(new Set([MODEL, ...others].map(checkpoint => modelIdentity({ checkpoint }))).size).toBe(5);
});
