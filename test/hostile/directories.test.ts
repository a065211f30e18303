/** Directories, indexes and JSON files that are not what they should be. */

import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import { MAX_TOKENIZER_BYTES, readJsonObject } from '../../src/formats/json.ts';
import { copyPack, FIRST_SHARD, INDEX, refusalOf, sparseFile, temporaryDirectory } from './fixtures.ts';

function codeOf(directory: string): string {
  return refusalOf(() => openCheckpoint(directory)).code;
}

describe('M19: config.json', () => {
  function withConfig(content: string): string {
    const directory = copyPack();
    fs.writeFileSync(join(directory, 'config.json'), content);
    return directory;
  }

  test('300 MB are refused before a byte is read', () => {
    const directory = copyPack();
    sparseFile(join(directory, 'config.json'), 300_000_000);
    const error = refusalOf(() => openCheckpoint(directory), 0);
    expect(error.code).toBe('FILE_TOO_LARGE');
    expect(error.message).toContain('config.json has 300000000 bytes');
  });

  test.each([
    ['100,000 nested arrays', `${'['.repeat(100_000)}${']'.repeat(100_000)}`, 'JSON_TOO_DEEP'],
    ['100,000 nested objects', `${'{"a":'.repeat(100_000)}1${'}'.repeat(100_000)}`, 'JSON_TOO_DEEP'],
    ['100,000 open brackets', '['.repeat(100_000), 'JSON_TOO_DEEP'],
    ['a key twice', '{"model_type":"olmoe","a":{"b":1,"b":2}}', 'JSON_DUPLICATE_KEY'],
    ['an array', '[1,2]', 'JSON_NOT_OBJECT'],
    ['null', 'null', 'JSON_NOT_OBJECT'],
    ['nothing', '', 'JSON_INVALID'],
    ['half a file', '{"model_type":"olmoe","hidden_', 'JSON_INVALID'],
    ['a web page', '<html><body>404</body></html>', 'JSON_INVALID'],
    ['control characters', '{"a":"\u001b[2J"}', 'JSON_INVALID'],
  ])('%s', (_, content, code) => {
    const directory = withConfig(content);
    const error = refusalOf(() => openCheckpoint(directory));
    expect(error.code).toBe(code);
    expect(error.message).toContain('config.json');
    expect(error.message.includes('\u001b')).toBe(false);
  });

  test('bytes that are not UTF-8', () => {
    const directory = copyPack();
    fs.writeFileSync(join(directory, 'config.json'), Buffer.from([0x7b, 0xff, 0x7d]));
    expect(codeOf(directory)).toBe('JSON_NOT_UTF8');
  });

  test('64 levels are allowed', () => {
    const directory = withConfig(`{"a":${'['.repeat(63)}${']'.repeat(63)}}`);
    expect(Object.keys(openCheckpoint(directory).config)).toEqual(['a']);
  });

  test('the same limits hold for generation_config.json, which may be absent', () => {
    const directory = copyPack();
    const path = join(directory, 'generation_config.json');
    expect(openCheckpoint(directory).generationConfig).not.toBeNull();
    sparseFile(path, 300_000_000);
    expect(codeOf(directory)).toBe('FILE_TOO_LARGE');
    fs.rmSync(path);
    expect(openCheckpoint(directory).generationConfig).toBeNull();
    fs.symlinkSync('nowhere.json', path);
    expect(codeOf(directory)).toBe('FILE_MISSING');
  });
});

describe('M20: tokenizer.json as JSON', () => {
  test.each([
    ['a vocabulary entry twice', '{"model":{"vocab":{"a":0,"b":1,"\\u0061":2}}}', 'JSON_DUPLICATE_KEY'],
    ['deep nesting', `{"model":${'['.repeat(100_000)}`, 'JSON_TOO_DEEP'],
    ['cut', '{"model":{"vocab":{"a":0,', 'JSON_INVALID'],
  ])('%s', (_, content, code) => {
    const path = join(temporaryDirectory(), 'tokenizer.json');
    fs.writeFileSync(path, content);
    const error = refusalOf(() => readJsonObject(path, MAX_TOKENIZER_BYTES));
    expect(error.code).toBe(code);
    expect(error.message).toContain('tokenizer.json');
    if (code === 'JSON_DUPLICATE_KEY') expect(error.details.path).toBe('$.model.vocab.a');
  });

  test('larger than any real one', () => {
    const path = join(temporaryDirectory(), 'tokenizer.json');
    sparseFile(path, MAX_TOKENIZER_BYTES + 1);
    expect(refusalOf(() => readJsonObject(path, MAX_TOKENIZER_BYTES), 0).code).toBe('FILE_TOO_LARGE');
  });
});

describe('the shard index', () => {
  function withIndex(index: string): string {
    const directory = copyPack();
    fs.writeFileSync(join(directory, INDEX), index);
    return directory;
  }

  test.each([
    ['../model.safetensors'],
    ['/etc/passwd.safetensors'],
    ['a/../../b.safetensors'],
    ['sub/model.safetensors'],
    ['..\\\\model.safetensors'],
    ['C:\\\\model.safetensors'],
    ['model\\u0000.safetensors'],
    ['..'],
    [''],
    ['config.json'],
    ['pytorch_model.bin'],
    ['._model.safetensors'],
  ])('must not name %s', name => {
    const directory = withIndex(`{"weight_map":{"lm_head.weight":"${name}"}}`);
    const error = refusalOf(() => openCheckpoint(directory), 1000);
    expect(error.code).toBe('BAD_SHARD_INDEX');
    expect(error.message).toContain('lm_head.weight');
  });

  test.each([
    '{}',
    '{"weight_map":[]}',
    '{"weight_map":null}',
    '{"weight_map":{}}',
    '{"weight_map":{"a":1}}',
    '{"weight_map":{"a":["model.safetensors"]}}',
  ])('%s', index => expect(codeOf(withIndex(index))).toBe('BAD_SHARD_INDEX'));

  test('a tensor that the index forgot is kept and mentioned', () => {
    const directory = copyPack();
    const index = JSON.parse(fs.readFileSync(join(directory, INDEX), 'utf8'));
    delete index.weight_map['lm_head.weight'];
    fs.writeFileSync(join(directory, INDEX), JSON.stringify(index));
    const checkpoint = openCheckpoint(directory);
    expect(checkpoint.tensors.has('lm_head.weight')).toBe(true);
    expect(checkpoint.unindexedTensors).toEqual(['lm_head.weight']);
  });
});

describe('the directory', () => {
  test('does not exist, is a file, has no config, has no weights', () => {
    const directory = copyPack();
    expect(codeOf(join(directory, 'nowhere'))).toBe('MODEL_NOT_FOUND');
    expect(codeOf(join(directory, FIRST_SHARD))).toBe('MODEL_NOT_A_DIRECTORY');
    for (const name of fs.readdirSync(directory)) if (/safetensors/.test(name)) fs.rmSync(join(directory, name));
    expect(codeOf(directory)).toBe('WEIGHTS_MISSING');
    fs.writeFileSync(join(directory, 'model.gguf'), '');
    expect(refusalOf(() => openCheckpoint(directory)).message).toContain('model.gguf');
    fs.rmSync(join(directory, 'config.json'));
    expect(codeOf(directory)).toBe('CONFIG_MISSING');
    fs.writeFileSync(join(directory, 'coli.convert.json'), '{}');
    expect(codeOf(directory)).toBe('CONVERSION_UNFINISHED');
    fs.rmSync(join(directory, 'coli.convert.json'));
    fs.mkdirSync(join(directory, 'snapshots'));
    expect(refusalOf(() => openCheckpoint(directory)).hint).toContain('snapshots');
  });

  test('a download cache: every file is a link to a blob', () => {
    const root = temporaryDirectory();
    copyPack('olmoe', join(root, 'pack'));
    const snapshot = join(root, 'snapshots', 'abc');
    fs.mkdirSync(join(root, 'blobs'));
    fs.mkdirSync(snapshot, { recursive: true });
    for (const [i, name] of fs.readdirSync(join(root, 'pack')).entries()) {
      fs.renameSync(join(root, 'pack', name), join(root, 'blobs', `blob${i}`));
      fs.symlinkSync(`../../blobs/blob${i}`, join(snapshot, name));
    }
    const { tensors, files } = openCheckpoint(snapshot);
    expect(tensors.size).toBe(174);
    expect(files[0].path).toBe(join(snapshot, FIRST_SHARD));
    expect(files[0].bytes).toBe(504256);

    fs.rmSync(fs.realpathSync(join(snapshot, FIRST_SHARD)));
    const error = refusalOf(() => openCheckpoint(snapshot));
    expect(error.code).toBe('FILE_MISSING');
    expect(error.message).toContain(FIRST_SHARD);
  });

  test.each(['with space', 'ünïcödé 模型 🐦', 'hash#mark', '100%25', "quo'te"])('a path %s', name => {
    const directory = copyPack('olmoe', join(temporaryDirectory(), name));
    expect(openCheckpoint(directory).tensors.size).toBe(174);
  });

  test('a pipe or a directory in place of a shard does not block', () => {
    const directory = copyPack();
    const path = join(directory, FIRST_SHARD);
    fs.rmSync(path);
    fs.mkdirSync(path);
    expect(refusalOf(() => openCheckpoint(directory)).code).toBe('NOT_A_FILE');
    if (process.platform === 'win32') return;
    fs.rmdirSync(path);
    execFileSync('mkfifo', [path]);
    expect(refusalOf(() => openCheckpoint(directory)).code).toBe('NOT_A_FILE');
  });
});
