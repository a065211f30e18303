/** Experts and matrices of whole checkpoints against values decoded straight from their files. */

import fs from 'node:fs';
import { describe, expect, test } from 'vitest';
import { checkPart, loadParts } from '../../test/support/checkpoint-bytes.ts';
import { openCheckpoint } from '../formats/checkpoint.ts';
import type { Checkpoint } from '../formats/checkpoint-types.ts';
import { bfloatToFloat } from '../kernels/reference/math.ts';
import { familyOf } from '../models/registry.ts';
import { resolveExpert, resolveMatrix } from './resolve.ts';
import type { Extent, StoredRecord } from './stored.ts';

const packs = new URL('../../test/oracles/', import.meta.url);
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

function e4m3(byte: number): number {
  const exponent = (byte >> 3) & 15;
  const value = exponent === 0 ? (byte & 7) * 2 ** -9 : (1 + (byte & 7) / 8) * 2 ** (exponent - 7);
  return byte & 0x80 ? -value : value;
}

class Files {
  readonly checkpoint: Checkpoint;
  readonly #files: readonly Uint8Array[];

  constructor(pack: string) {
    this.checkpoint = openCheckpoint(new URL(pack, packs).pathname);
    this.#files = this.checkpoint.files.map(({ path }) => new Uint8Array(fs.readFileSync(path)));
  }

  readonly read = ({ file, offset, bytes }: Extent): Uint8Array => this.#files[file].subarray(offset, offset + bytes);

  bytes(name: string): Uint8Array {
    return this.read(this.checkpoint.tensors.get(name)!);
  }

  /** Element i of a BF16 or F32 tensor. */
  number(name: string, i: number): number {
    const bytes = this.bytes(name);
    if (this.checkpoint.tensors.get(name)!.dtype === 'BF16')
      return bfloatToFloat(bytes[2 * i] | (bytes[2 * i + 1] << 8));
    return new DataView(bytes.slice().buffer).getFloat32(4 * i, true);
  }

  load(record: StoredRecord): Uint8Array[] {
    return loadParts(record, this.read);
  }
}

/** Routed expert `expert` of layer `layer`, as the family of the pack asks for it. */
function expertOf({ checkpoint }: Files, layer: number, expert: number): StoredRecord {
  const family = familyOf(checkpoint.config);
  const table = family.tensors(family.parseConfig(checkpoint.config), { mtp: false });
  const names = table.experts.find(each => each.layer === layer && each.expert === expert)!;
  return resolveExpert(checkpoint, names, table);
}

describe.each([
  ['qwen3-moe-fp8', 'model.layers.0.', 'gate_proj up_proj down_proj', 'mlp.experts.'],
  ['qwen36-fp8', 'model.language_model.layers.0.', 'gate_proj up_proj down_proj', 'mlp.experts.'],
  ['minimax-m2-fp8', 'model.layers.0.', 'w1 w3 w2', 'block_sparse_moe.experts.'],
])('%s', (pack, prefix, roles, experts) => {
  const files = new Files(pack);
  const fp8 = (name: string, columns: number) => {
    const codes = files.bytes(name);
    return (r: number, c: number): number => {
      const block = Math.floor(r / 128) * Math.ceil(columns / 128) + Math.floor(c / 128);
      return e4m3(codes[r * columns + c]) * files.number(`${name}_scale_inv`, block);
    };
  };

  test('an expert', () => {
    const record = expertOf(files, 0, 5);
    const parts = files.load(record);
    for (const [i, role] of roles.split(' ').entries()) {
      expect(record.parts[i]).toMatchObject({ encoding: 'fp8', layout: 'fp8' });
      checkPart(record, i, parts[i], fp8(`${prefix}${experts}5.${role}.weight`, record.parts[i].columns));
    }
  });

  test('a resident matrix whose last blocks are short', () => {
    const name = [...files.checkpoint.tensors.values()].find(
      ({ dtype, shape: [rows, columns] }) => dtype === 'F8_E4M3' && rows > 128 && columns === 144,
    )?.name;
    // not every pack has so many rows in a matrix; all have these columns
    const found = name ?? `${prefix}self_attn.q_proj.weight`;
    const [rows, columns] = files.checkpoint.tensors.get(found)!.shape;
    expect(columns).toBe(144);
    const record = resolveMatrix(files.checkpoint, found, rows, columns);
    checkPart(record, 0, files.load(record)[0], fp8(found, columns));
  });
});

describe('gpt-oss', () => {
  const [hidden, width] = [64, 64];
  const bias =
    (files: Files, i: number) =>
    (_: number, c: number): number => {
      const p = 'model.layers.1.mlp.experts.';
      if (i === 2) return files.number(`${p}down_proj_bias`, 7 * hidden + c);
      return files.number(`${p}gate_up_proj_bias`, (7 * width + c) * 2 + i);
    };

  test('MXFP4 blocks of all experts in one tensor', () => {
    const files = new Files('gpt-oss-mxfp4');
    const record = expertOf(files, 1, 7);
    const parts = files.load(record);
    const p = 'model.layers.1.mlp.experts.';
    const mxfp4 = (name: string, row: number, c: number): number => {
      const byte = files.bytes(`${p}${name}_blocks`)[row * 32 + (c >> 1)];
      const scale = files.bytes(`${p}${name}_scales`)[row * 2 + (c >> 5)];
      return E2M1[c % 2 === 0 ? byte & 15 : byte >> 4] * 2 ** (scale - 127);
    };
    for (const i of [0, 1]) {
      checkPart(record, i, parts[i], (r, c) => mxfp4('gate_up_proj', (7 * width + r) * 2 + i, c));
    }
    checkPart(record, 2, parts[2], (r, c) => mxfp4('down_proj', 7 * hidden + r, c));
    for (const i of [0, 1, 2]) checkPart(record, 3 + i, parts[3 + i], bias(files, i));
  });

  test('bfloat16 saves, transposed', () => {
    const files = new Files('gpt-oss');
    const record = expertOf(files, 1, 7);
    const parts = files.load(record);
    const p = 'model.layers.1.mlp.experts.';
    const width = record.parts[0].rows;
    for (const i of [0, 1]) {
      checkPart(record, i, parts[i], (r, c) =>
        files.number(`${p}gate_up_proj`, (7 * hidden + c) * 2 * width + 2 * r + i),
      );
    }
    checkPart(record, 2, parts[2], (r, c) => files.number(`${p}down_proj`, (7 * width + c) * hidden + r));
    expect(record.parts.map(part => part.layout)).toEqual(['bf16', 'bf16', 'bf16', 'f32', 'f32', 'f32']);
  });
});
