import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { checkPart, contentsOf, loadParts, tensorBytes } from '../../../test/support/checkpoint-bytes.ts';
import { fake, refusal } from '../../../test/support/fake-checkpoint.ts';
import type { Checkpoint } from '../../formats/checkpoint-types.ts';
import { PACKERS } from '../pack.ts';
import { resolveRef } from '../resolve.ts';

const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'nvfp4-'));
afterAll(() => fs.rmSync(directory, { recursive: true }));

const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

function e4m3(byte: number): number {
  const exponent = (byte >> 3) & 15;
  const value = exponent === 0 ? (byte & 7) * 2 ** -9 : (1 + (byte & 7) / 8) * 2 ** (exponent - 7);
  return byte & 0x80 ? -value : value;
}

/** Matrices [matrices, 6, 64] in a file, with these global scales. */
function stored(
  matrices: number,
  factors: number[],
  lead = [matrices],
): { checkpoint: Checkpoint; contents: Uint8Array } {
  const checkpoint = fake({
    pad: ['U8', [1]],
    'w.weight': ['U8', [...lead, 6, 32]],
    'w.weight_scale': ['F8_E4M3', [...lead, 6, 4]],
    'w.weight_scale_2': ['F32', factors.length === 1 ? [] : [factors.length]],
  });
  const contents = contentsOf(checkpoint);
  tensorBytes(contents, checkpoint.tensors.get('w.weight_scale_2')!).set(
    new Uint8Array(Float32Array.from(factors).buffer),
  );
  const file = path.join(directory, `${factors.join('_')}-${lead.join('_')}`);
  fs.writeFileSync(file, contents);
  return { checkpoint: { ...checkpoint, files: [{ ...checkpoint.files[0], path: file }] }, contents };
}

describe('NVFP4 of modelopt', () => {
  test.each([
    ['a matrix', 1, [0.001], [], null],
    ['one of several, a global scale each', 3, [0.001, 0.5, 0.25], [3], 2],
    ['one of several with a common global scale', 3, [0.03], [3], 1],
  ] as const)('%s', (_, matrices, factors, lead, index) => {
    const { checkpoint, contents } = stored(matrices, [...factors], [...lead]);
    const at = index ?? 0;
    const slice = index === null ? undefined : { index, of: matrices };
    const every = { first: 1, step: 2, of: 6 };
    for (const rows of [undefined, every]) {
      const record = resolveRef(checkpoint, { name: 'w.weight', slice, rows }, rows ? 3 : 6, 64);
      expect(record.parts[0]).toMatchObject({ encoding: 'nvfp4', layout: 'nvfp4' });
      const [part] = loadParts(record, ({ offset, bytes }) => contents.subarray(offset, offset + bytes));
      const bytes = (name: string): Uint8Array => tensorBytes(contents, checkpoint.tensors.get(name)!);
      const factor = Math.fround([...factors][factors.length === 1 ? 0 : at]);
      checkPart(record, 0, part, (r, c) => {
        const row = at * 6 + (rows ? 1 + 2 * r : r);
        const byte = bytes('w.weight')[row * 32 + (c >> 1)];
        return E2M1[c % 2 === 0 ? byte & 15 : byte >> 4] * e4m3(bytes('w.weight_scale')[row * 4 + (c >> 4)]) * factor;
      });
    }
  });

  test('the reciprocal of the global scale is refused before anything is loaded', () => {
    const { checkpoint } = stored(1, [1536], []);
    const error = refusal(() => resolveRef(checkpoint, { name: 'w.weight' }, 6, 64));
    expect(error.code).toBe('SCALE_RECIPROCAL');
    expect(error.message).toMatch(/"w\.weight_scale_2" is 1536: .* below 1, this is its reciprocal/);
  });

  test('one that comes later is found where it is packed', () => {
    const pack = (factor: number) => {
      const inputs = [new Uint8Array(8), new Uint8Array(1), new Uint8Array(Float32Array.of(factor).buffer)];
      PACKERS['nvfp4'](inputs, 1, 16, new Uint8Array(13), [1]);
    };
    expect(() => pack(1)).toThrow(expect.objectContaining({ code: 'SCALE_RECIPROCAL' }));
    expect(() => pack(0.99)).not.toThrow();
    // not a number: found when the expert is used
    expect(() => pack(Number.NaN)).not.toThrow();
  });
});
