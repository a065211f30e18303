import fs from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { copyPack, INDEX } from '../../test/hostile/fixtures.ts';
import { inspectModel } from './describe.ts';

const notesOf = (model: string): readonly string[] => inspectModel({ model, kernels: 'wasm' }).notes;

test('weight files and tensors that the index does not name are told, once each', () => {
  const model = copyPack();
  const before = notesOf(model);
  fs.writeFileSync(join(model, 'a-stray.safetensors'), 'not read');
  fs.writeFileSync(join(model, 'b-stray.safetensors'), 'not read');
  const path = join(model, INDEX);
  const index = JSON.parse(fs.readFileSync(path, 'utf8'));
  delete index.weight_map['model.norm.weight'];
  fs.writeFileSync(path, JSON.stringify(index));
  expect(before.filter(note => note.includes('index'))).toEqual([]);
  expect(notesOf(model).filter(note => !before.includes(note))).toEqual([
    'weight files that the index does not name are not read: 2, such as "a-stray.safetensors"',
    'tensors that the index does not list are read all the same: 1, such as "model.norm.weight"',
  ]);
});

test('a tokenizer.json that is a link to itself is refused by name', () => {
  const model = copyPack();
  const path = join(model, 'tokenizer.json');
  fs.rmSync(path);
  fs.symlinkSync(path, path);
  expect(() => notesOf(model)).toThrow(
    expect.objectContaining({ code: 'FILE_UNREADABLE', message: expect.stringContaining(path) }),
  );
});
