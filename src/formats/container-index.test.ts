import fs from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { refusalOf, temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { openCheckpoint } from './checkpoint.ts';
import { CONTAINER_INDEX_FILE, containerIndexToJson, parseContainerIndex } from './container-index.ts';
import { writeSafetensors } from './safetensors-writer.ts';

const RECORD = 'model.layers.0.mlp.experts.0';
const part = (role: string, offset: number) => ({ role, encoding: 'q4g64', rows: 16, columns: 64, offset });

/** Plain JSON of a small container, with some fields replaced. */
function indexJson(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    version: 1,
    writer: 'coli 0.1.0',
    source: { directory: 'OLMoE', sha256: 'ab' },
    matrices: { 'lm_head.weight': { encoding: 'q8g64', rows: 16, columns: 64 } },
    experts: { [RECORD]: { parts: [part('gate', 0), part('up', 544), part('down', 1088)] } },
    sha256: { [RECORD]: '0123456789abcdef'.repeat(4) },
    ...changes,
  };
}

function container(json: Record<string, unknown>): string {
  const directory = temporaryDirectory();
  fs.writeFileSync(join(directory, 'config.json'), '{"model_type":"olmoe"}');
  fs.writeFileSync(join(directory, CONTAINER_INDEX_FILE), JSON.stringify(json));
  writeSafetensors(
    join(directory, 'model.safetensors'),
    [
      { name: RECORD, dtype: 'U8', shape: [4096], bytes: new Uint8Array(4096) },
      { name: 'lm_head.weight', dtype: 'U8', shape: [1056], bytes: new Uint8Array(1056) },
      { name: 'norm.weight', dtype: 'F32', shape: [4], bytes: new Uint8Array(16) },
    ],
    { alignDataTo: 4096 },
  );
  return directory;
}

test('JSON to index to JSON', () => {
  const json = indexJson();
  const index = parseContainerIndex(json, 'x');
  expect(index.matrices.get('lm_head.weight')).toEqual({ encoding: 'q8g64', rows: 16, columns: 64 });
  expect(index.experts.get(RECORD)!.parts.map(p => p.role)).toEqual(['gate', 'up', 'down']);
  expect(JSON.stringify(containerIndexToJson(index))).toBe(JSON.stringify(json));
  expect(parseContainerIndex(indexJson({ source: null }), 'x').source).toBeNull();
});

test('a container opens with its index', () => {
  const { container: index, tensors } = openCheckpoint(container(indexJson()));
  expect(index!.sha256.get(RECORD)).toMatch(/^[0-9a-f]{64}$/);
  expect(tensors.get(RECORD)!.offset % 4096).toBe(0);
});

test('a newer version is refused with its number', () => {
  const error = refusalOf(() => openCheckpoint(container({ version: 7, somethingNew: true })));
  expect(error.code).toBe('CONTAINER_TOO_NEW');
  expect(error.message).toContain('version 7');
  expect(error.message).toContain('version 1');
});

describe('refused', () => {
  const oneRecord = (...parts: unknown[]) => ({ experts: { [RECORD]: { parts } } });
  test.each<[string, Record<string, unknown>, string]>([
    ['version 0', { version: 0 }, '$.version'],
    ['version as text', { version: '1' }, '$.version'],
    ['no writer', { writer: undefined }, '$.writer'],
    ['unknown field', { extra: 1 }, 'extra'],
    ['rows 0', { matrices: { a: { encoding: 'q8', rows: 0, columns: 1 } } }, '$.matrices.a.rows'],
    ['rows 1.5', { matrices: { a: { encoding: 'q8', rows: 1.5, columns: 1 } } }, '$.matrices.a.rows'],
    ['rows 2^31', { matrices: { a: { encoding: 'q8', rows: 2 ** 31, columns: 1 } } }, '$.matrices.a.rows'],
    ['no encoding', { matrices: { a: { rows: 1, columns: 1 } } }, '$.matrices.a.encoding'],
    ['a list of matrices', { matrices: [] }, '$.matrices'],
    ['no parts', oneRecord(), '.parts'],
    ['negative offset', oneRecord(part('gate', -1)), '.parts[0].offset'],
    ['parts out of order', oneRecord(part('gate', 544), part('up', 0)), 'ascending'],
    ['short hash', { sha256: { [RECORD]: 'abc' } }, '$.sha256'],
    ['upper-case hash', { sha256: { [RECORD]: 'AB'.repeat(32) } }, '$.sha256'],
    [
      'a name that objects hide',
      { matrices: JSON.parse('{"__proto__":{"encoding":"q","rows":1,"columns":1}}') },
      '__proto__',
    ],
    ['a matrix without tensor', { matrices: { gone: { encoding: 'q8', rows: 1, columns: 1 } } }, '"gone"'],
    ['a record without tensor', { experts: { gone: { parts: [part('gate', 0)] } } }, '"gone"'],
    ['a hash without tensor', { sha256: { gone: 'ab'.repeat(32) } }, '"gone"'],
    ['a record that is no byte tensor', { experts: { 'norm.weight': { parts: [part('gate', 0)] } } }, 'must be U8'],
    ['a part outside its record', oneRecord(part('gate', 4096)), '4096'],
  ])('%s', (_, changes, text) => {
    const error = refusalOf(() => openCheckpoint(container(indexJson(changes))));
    expect(error.code).toBe('BAD_CONTAINER_INDEX');
    expect(error.message).toContain(CONTAINER_INDEX_FILE);
    expect(error.message).toContain(text);
  });
});
