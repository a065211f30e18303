/** Shards that are cut, too long, missing, doubled, strange or huge. */

import fs from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { requireExpertCount, requireTensors } from '../../src/formats/census.ts';
import { assertUnchanged, openCheckpoint } from '../../src/formats/checkpoint.ts';
import { readExact } from '../../src/formats/files.ts';
import { readSafetensorsHeader } from '../../src/formats/safetensors.ts';
import { encodeSafetensorsHeader } from '../../src/formats/safetensors-writer.ts';
import {
  copyPack,
  editHeader,
  FIRST_SHARD,
  INDEX,
  LAST_SHARD,
  readShard,
  refusalOf,
  sparseFile,
  temporaryDirectory,
  writeShard,
} from './fixtures.ts';

describe('M07: truncated shards', () => {
  test.each([1, 4096, 501384 / 2])('cut by %d bytes', cut => {
    const directory = copyPack();
    const path = join(directory, 'model-00002-of-00003.safetensors');
    fs.truncateSync(path, 501384 - cut);
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('SHARD_TRUNCATED');
    expect(error.message).toContain('model-00002-of-00003.safetensors');
    expect(error.message).toContain(`${cut} bytes too short`);
    expect(error.details.missing).toBe(cut);
    expect(error.hint).toContain('download this shard again');
  });

  test('cut inside the header', () => {
    const directory = copyPack();
    fs.truncateSync(join(directory, FIRST_SHARD), 1000);
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('SHARD_TRUNCATED');
    expect(error.message).toContain(FIRST_SHARD);
  });
});

test('M09: bytes after the last tensor', () => {
  const directory = copyPack();
  fs.appendFileSync(join(directory, LAST_SHARD), Buffer.alloc(100));
  const error = refusalOf(() => openCheckpoint(directory));
  expect(error.code).toBe('SHARD_TRAILING_BYTES');
  expect(error.message).toContain(LAST_SHARD);
  expect(error.message).toContain('100 bytes after its last tensor');
});

describe('M11: files that do not belong to the model', () => {
  test('only the files of the index are read; the others are listed', () => {
    const directory = copyPack();
    const before = openCheckpoint(directory);
    fs.copyFileSync(join(directory, FIRST_SHARD), join(directory, 'extra.safetensors'));
    fs.copyFileSync(join(directory, FIRST_SHARD), join(directory, `${FIRST_SHARD}.bak`));
    fs.writeFileSync(join(directory, '._x.safetensors'), 'AppleDouble');
    const after = openCheckpoint(directory);
    expect([...after.tensors]).toEqual([...before.tensors]);
    expect(before.ignoredFiles).toEqual([]);
    expect(after.ignoredFiles).toEqual(['._x.safetensors', 'extra.safetensors', `${FIRST_SHARD}.bak`]);
  });

  test('without an index a numbered set is taken alone', () => {
    const directory = copyPack();
    fs.rmSync(join(directory, INDEX));
    fs.copyFileSync(join(directory, FIRST_SHARD), join(directory, 'extra.safetensors'));
    fs.writeFileSync(join(directory, '._model-00001-of-00003.safetensors'), 'AppleDouble');
    const { tensors, ignoredFiles } = openCheckpoint(directory);
    expect(tensors.size).toBe(174);
    expect(ignoredFiles).toEqual(['._model-00001-of-00003.safetensors', 'extra.safetensors']);
  });

  test('without index or numbers every shard is read, and a tensor in two of them is refused', () => {
    const directory = copyPack();
    fs.rmSync(join(directory, INDEX));
    for (const i of [1, 2, 3]) {
      fs.renameSync(
        join(directory, `model-0000${i}-of-00003.safetensors`),
        join(directory, `out-0000${i}.safetensors`),
      );
    }
    fs.writeFileSync(join(directory, '._out-00001.safetensors'), 'AppleDouble');
    expect(openCheckpoint(directory).tensors.size).toBe(174);
    fs.copyFileSync(join(directory, 'out-00002.safetensors'), join(directory, 'copy.safetensors'));
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('TENSOR_TWICE');
    expect(error.message).toContain('copy.safetensors');
    expect(error.message).toContain('out-00002.safetensors');
  });
});

describe('M13: half of a model', () => {
  test('one error names the absent layers and tensors', () => {
    const directory = copyPack();
    const required = [...openCheckpoint(directory).tensors.keys()];
    // What a stopped conversion leaves: the embedding and most of layer 0.
    const path = join(directory, 'model.safetensors');
    const { header, data } = readShard(join(directory, FIRST_SHARD));
    writeShard(path, JSON.stringify(header), data);
    fs.rmSync(join(directory, INDEX));
    const { tensors } = openCheckpoint(directory);
    const error = refusalOf(() => requireTensors(directory, tensors, required));
    const missing = required.filter(name => !tensors.has(name));
    expect(missing.length).toBeGreaterThan(100);
    expect(error.code).toBe('TENSORS_MISSING');
    expect(error.message).toContain(`${missing.length} of 174 tensors are absent`);
    expect(error.message).toContain('absent layers: 1-2 (2 of 3)');
    expect(error.message).toContain('incomplete layers: 0 lacks 3 of 57');
    expect(error.message).toContain('outside layers: "lm_head.weight", "model.norm.weight"');
    expect(() => requireTensors(directory, tensors, tensors.keys())).not.toThrow();
  });

  test('an index that names a shard that is not there', () => {
    const directory = copyPack();
    fs.rmSync(join(directory, FIRST_SHARD));
    fs.rmSync(join(directory, LAST_SHARD));
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('SHARD_MISSING');
    expect(error.message).toContain('2 of 3 shards are missing');
    expect(error.message).toContain(FIRST_SHARD);
    expect(error.message).toContain(LAST_SHARD);
  });

  test('a numbered set without index that is not whole', () => {
    const directory = copyPack();
    fs.rmSync(join(directory, INDEX));
    fs.rmSync(join(directory, LAST_SHARD));
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('SHARD_MISSING');
    expect(error.message).toContain(LAST_SHARD);
  });

  test('a shard that lacks a tensor the index places there', () => {
    const directory = copyPack();
    editHeader(join(directory, FIRST_SHARD), header => {
      header['renamed.weight'] = header['model.embed_tokens.weight'];
      delete header['model.embed_tokens.weight'];
    });
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('TENSOR_NOT_IN_SHARD');
    expect(error.message).toContain(FIRST_SHARD);
    expect(error.message).toContain('"model.embed_tokens.weight"');
    expect(error.message).toContain('no shard has it');
  });

  test('a tensor in another shard than the index says', () => {
    const directory = copyPack();
    const index = JSON.parse(fs.readFileSync(join(directory, INDEX), 'utf8'));
    index.weight_map['lm_head.weight'] = FIRST_SHARD;
    fs.writeFileSync(join(directory, INDEX), JSON.stringify(index));
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe('TENSOR_NOT_IN_SHARD');
    expect(error.message).toContain(`it lies in "${LAST_SHARD}"`);
  });
});

test('M21: config, router and tensors disagree about the number of experts', () => {
  const counts = { config: 4, routerRows: 8, tensors: 16 };
  const error = refusalOf(() => requireExpertCount('/models/pruned', 3, counts));
  expect(error.code).toBe('EXPERT_COUNT_MISMATCH');
  expect(error.message).toContain('layer 3 has 4 experts by config.json, 8 router rows and 16 experts with tensors');
  expect(error.details).toMatchObject(counts);
  expect(() => requireExpertCount('/m', 0, { config: 8, routerRows: 8, tensors: 8 })).not.toThrow();
  for (const field of ['config', 'routerRows', 'tensors']) {
    const one = { config: 8, routerRows: 8, tensors: 8, [field]: 4 };
    expect(refusalOf(() => requireExpertCount('/m', 0, one)).code).toBe('EXPERT_COUNT_MISMATCH');
  }
});

describe('M25: a shard of more than 4 GiB', () => {
  test('tensors beyond 2^31 and 2^32 are found where they are', () => {
    const path = join(temporaryDirectory(), 'model.safetensors');
    const entries = [
      { name: 'filler.0', dtype: 'U8', shape: [2 ** 31 + 5] },
      { name: 'beyond.31', dtype: 'U8', shape: [6] },
      { name: 'filler.1', dtype: 'U8', shape: [2 ** 31 + 7] },
      { name: 'beyond.32', dtype: 'U8', shape: [6] },
      { name: 'filler.2', dtype: 'BF16', shape: [2 ** 15, 2 ** 14] },
    ] as const;
    const header = encodeSafetensorsHeader(entries);
    const at31 = header.length + 2 ** 31 + 5;
    const at32 = at31 + 6 + 2 ** 31 + 7;
    sparseFile(path, at32 + 6 + 2 ** 30);
    const fd = fs.openSync(path, 'r+');
    fs.writeSync(fd, header, 0, header.length, 0);
    fs.writeSync(fd, Buffer.from('first!'), 0, 6, at31);
    fs.writeSync(fd, Buffer.from('second'), 0, 6, at32);
    fs.closeSync(fd);

    const { tensors, identity } = readSafetensorsHeader(path);
    expect(identity.bytes).toBeGreaterThan(5e9);
    const text = (name: string) => {
      const { offset, bytes } = tensors.find(tensor => tensor.name === name)!;
      const target = new Uint8Array(bytes);
      const read = fs.openSync(path, 'r');
      readExact(read, target, offset, path);
      fs.closeSync(read);
      return Buffer.from(target).toString();
    };
    expect(tensors.map(tensor => tensor.offset)).toEqual([header.length, at31, at31 + 6, at32, at32 + 6]);
    expect(text('beyond.31')).toBe('first!');
    expect(text('beyond.32')).toBe('second');
  });

  test('a span of more than 2 GiB is read in smaller pieces', () => {
    const requests: [number, number][] = [];
    const span = 2 ** 31 + 100;
    const target = { length: span } as Uint8Array; // the size is what counts; nothing that large is allocated
    const spy = vi.spyOn(fs, 'readSync').mockImplementation(((
      _fd: number,
      _t: object,
      _o: number,
      n: number,
      at: number,
    ) => {
      requests.push([at, n]);
      return n;
    }) as typeof fs.readSync);
    readExact(0, target, 50, 'shard');
    spy.mockRestore();
    expect(requests).toEqual([
      [50, 2 ** 30],
      [50 + 2 ** 30, 2 ** 30],
      [50 + 2 ** 31, 100],
    ]);
  });
});

describe('files that change while a model is in use', () => {
  test.each([
    ['cut', (path: string) => fs.truncateSync(path, 1000), 'size was 504256, is 1000'],
    ['touched', (path: string) => fs.utimesSync(path, 1e9, 1e9), 'modification time'],
    ['gone', (path: string) => fs.rmSync(path), 'it is gone'],
    [
      'replaced',
      (path: string) => {
        fs.copyFileSync(path, `${path}.new`);
        const { atime, mtime } = fs.statSync(path);
        fs.utimesSync(`${path}.new`, atime, mtime);
        fs.renameSync(`${path}.new`, path);
      },
      'inode was',
    ],
  ])('%s', (_, change, what) => {
    const directory = copyPack();
    const { files } = openCheckpoint(directory);
    expect(() => assertUnchanged(files)).not.toThrow();
    change(join(directory, FIRST_SHARD));
    const error = refusalOf(() => assertUnchanged(files));
    expect(error.code).toBe('MODEL_CHANGED');
    expect(error.name).toBe('StorageError');
    expect(error.message).toContain(FIRST_SHARD);
    expect(error.message).toContain(what);
  });
});
