import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { evalOracle, maxDifference } from './oracle.ts';
import { hasPrediction, readReference } from './reference.ts';

const PACK = new URL('../../test/oracles/olmoe/', import.meta.url).pathname;
const GLM = new URL('../../test/oracles/glm-moe-dsa/', import.meta.url).pathname;
const LAYERS = 3;

const folder = mkdtempSync(join(tmpdir(), 'coli-reference-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const file = (name: string) => join(folder, name);

beforeEach(() => {
  for (const name of ['reference.json', 'reference.safetensors']) cpSync(join(PACK, name), file(name));
});

/** Edits the header of reference.safetensors as text; the new text must be as long as the old. */
function editHeader(edit: (header: string) => string): void {
  const bytes = readFileSync(file('reference.safetensors'));
  const length = Number(bytes.readBigUInt64LE(0));
  const header = edit(bytes.toString('latin1', 8, 8 + length));
  expect(header.length).toBe(length);
  bytes.write(header, 8, 'latin1');
  writeFileSync(file('reference.safetensors'), bytes);
}

test('a pack is read with one row per token', () => {
  const reference = readReference(folder, LAYERS);
  expect(reference.inputIds.length).toBe(96);
  expect(reference.logits.length).toBe(96 * 512);
  expect(reference.hidden.map(values => values?.length)).toEqual([9216, 9216, 9216]);
  expect(reference.routerIds.map(ids => ids?.length)).toEqual([384, 384, 384]);
  expect(reference.tolerance).toBe(1e-4);
  expect(readReference(folder, LAYERS + 1).hidden[LAYERS]).toBeNull();
});

test('a pack of an indexer and a prediction head has both', () => {
  const { selected, mtp, hiddenRows } = readReference(GLM, 5);
  expect(hasPrediction(GLM)).toBe(true);
  expect(hasPrediction(PACK)).toBe(false);
  expect(hiddenRows).toBeNull();
  expect(selected.map(keys => keys?.length ?? null)).toEqual([96, 96, null, 96, null]);
  // top 16 of what a token sees
  expect(selected[0]?.map(keys => keys.length)).toEqual(Array.from({ length: 96 }, (_, i) => Math.min(i + 1, 16)));
  expect(selected[0]?.[3]).toEqual([0, 1, 2, 3]);
  expect(mtp).toMatchObject({ rows: 64 });
  expect(mtp?.logits.length).toBe(64 * 512);
  expect(mtp?.hidden?.length).toBe(64 * 64);
});

describe('what is no pack', () => {
  test.each(['reference.json', 'reference.safetensors'])('without %s', async name => {
    rmSync(file(name));
    const expected = { code: 'NO_REFERENCE', message: `${folder} has no ${name}` };
    expect(() => readReference(folder, LAYERS)).toThrow(expect.objectContaining(expected));
    // noticed although the folder has no model to open either
    await expect(evalOracle(folder)).rejects.toMatchObject(expected);
  });

  test.each([
    ['logits of another name', (h: string) => h.replace('"logits"', '"Logits"'), /logits is missing/],
    ['ids of another name', (h: string) => h.replace('"input_ids"', '"input_idz"'), /input_ids is missing/],
    [
      'logits of another type',
      (h: string) => swapDtype(h, 'logits', 'I32'),
      /logits is I32 \[96, 512\], expected F32 \[96/,
    ],
  ])('%s', (_, edit, message) => {
    editHeader(edit);
    expect(() => readReference(folder, LAYERS)).toThrow(message);
  });

  test('a tolerance that is no number', () => {
    writeFileSync(file('reference.json'), '{"tolerance_hint": "small", "greedy": []}');
    expect(() => readReference(folder, LAYERS)).toThrow(/reference\.json: tolerance_hint/);
  });
});

function swapDtype(header: string, tensor: string, dtype: string): string {
  const at = header.indexOf(`"${tensor}"`);
  return header.slice(0, at) + header.slice(at).replace('"F32"', `"${dtype}"`);
}

test('the largest difference, and no number stays no number', () => {
  expect(maxDifference(Float32Array.of(1, 2, 3), Float32Array.of(1, 4, 2.5))).toBe(2);
  expect(maxDifference(Float32Array.of(Number.NaN, 2), Float32Array.of(1, 2))).toBeNaN();
});
