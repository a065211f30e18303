/** kv_b_proj split by heads: the key part of each turned, the value part as it is, from any encoding. */

import { describe, expect, test } from 'vitest';
import { checkPart, contentsOf, loadParts, tensorBytes } from '../../../test/support/checkpoint-bytes.ts';
import { fake, refusal } from '../../../test/support/fake-checkpoint.ts';
import type { Checkpoint, ContainerIndex, Dtype } from '../../formats/checkpoint-types.ts';
import { decodeRow } from '../decode.ts';
import { layoutBytes } from '../layouts.ts';
import { resolveHeads, resolveRef } from '../resolve.ts';
import type { StoredRecord } from '../stored.ts';

type Entries = Record<string, [Dtype, number[]]>;

const HEADS = 3;
const KEY = 16;
const VALUE = 32;
const LATENT = 64;
const ROWS = HEADS * (KEY + VALUE);
const NAME = 'kv_b.weight';

const TILES = layoutBytes('q8g64', ROWS, LATENT);
const matrices = new Map([[NAME, { encoding: 'q8g64', rows: ROWS, columns: LATENT }]]);
const CASES: Record<string, [Entries, string, Record<string, unknown>?, Partial<ContainerIndex>?]> = {
  BF16: [{ [NAME]: ['BF16', [ROWS, LATENT]] }, 'bf16'],
  F16: [{ [NAME]: ['F16', [ROWS, LATENT]] }, 'f16'],
  F32: [{ [NAME]: ['F32', [ROWS, LATENT]] }, 'f32'],
  fp8: [
    { [NAME]: ['F8_E4M3', [ROWS, LATENT]], [`${NAME}_scale_inv`]: ['BF16', [2, 1]] },
    'f32',
    { quantization_config: { weight_block_size: [128, 128] } },
  ],
  MXFP4: [{ [`${NAME}_packed`]: ['U8', [ROWS, 32]], [`${NAME}_scale`]: ['F8_E8M0', [ROWS, 2]] }, 'f32'],
  'int8 of the C engine': [{ [NAME]: ['U8', [ROWS, LATENT]], [`${NAME}.qs`]: ['F32', [ROWS]] }, 'f32'],
  'int4 of the C engine': [{ [NAME]: ['U8', [ROWS, 32]], [`${NAME}.qs`]: ['F32', [ROWS]] }, 'f32'],
  'GGUF Q8_0': [{ [NAME]: ['Q8_0', [ROWS, LATENT]] }, 'f32'],
  'a container, bf16': [{ [NAME]: ['BF16', [ROWS, LATENT]] }, 'bf16', {}, {}],
  'a container, tiles': [{ [NAME]: ['U8', [TILES]] }, 'f32', {}, { matrices }],
};

function load(contents: Uint8Array, record: StoredRecord): Uint8Array {
  const size = record.packs.reduce((sum, step) => sum + step.bytes, 0);
  expect(size).toBe(layoutBytes(record.parts[0].layout, record.parts[0].rows, record.parts[0].columns));
  return loadParts(record, ({ offset, bytes }) => contents.subarray(offset, offset + bytes))[0];
}

/** The whole matrix as float32, loaded in the ordinary way. */
function whole(checkpoint: Checkpoint, contents: Uint8Array): Float32Array {
  const record = resolveRef(checkpoint, { name: NAME }, ROWS, LATENT);
  const [part] = loadParts(record, ({ offset, bytes }) => contents.subarray(offset, offset + bytes));
  const values = new Float32Array(ROWS * LATENT);
  for (let row = 0; row < ROWS; row++) {
    decodeRow(record.parts[0].layout, part, ROWS, LATENT, row, values.subarray(row * LATENT, (row + 1) * LATENT));
  }
  return values;
}

describe.each(Object.entries(CASES))('%s', (_, [entries, layout, config, container]) => {
  const checkpoint = fake({ pad: ['U8', [1]], ...entries }, container ?? null, config);
  const contents = contentsOf(checkpoint);
  if (container?.matrices) makeScalesFinite(tensorBytes(contents, checkpoint.tensors.get(NAME)!));
  const values = whole(checkpoint, contents);
  const shape = { heads: HEADS, keyDim: KEY, valueDim: VALUE };

  test('keys: [heads * latent, keyDim]', () => {
    const record = resolveHeads(checkpoint, NAME, { step: 'head-keys', ...shape }, HEADS * LATENT, KEY);
    expect(record.parts).toMatchObject([{ layout, rows: HEADS * LATENT, columns: KEY }]);
    checkPart(record, 0, load(contents, record), (r, c) => {
      const head = Math.floor(r / LATENT);
      return values[(head * (KEY + VALUE) + c) * LATENT + (r % LATENT)];
    });
  });

  test('values: [heads * valueDim, latent]', () => {
    const record = resolveHeads(checkpoint, NAME, { step: 'head-values', ...shape }, HEADS * VALUE, LATENT);
    expect(record.parts).toMatchObject([{ layout, rows: HEADS * VALUE, columns: LATENT }]);
    checkPart(record, 0, load(contents, record), (r, c) => {
      const head = Math.floor(r / VALUE);
      return values[(head * (KEY + VALUE) + KEY + (r % VALUE)) * LATENT + c];
    });
  });
});

/** bfloat16 scales at the end of each q8g64 tile. */
function makeScalesFinite(tiles: Uint8Array): void {
  const tileBytes = layoutBytes('q8g64', 16, 64);
  for (let end = tileBytes; end <= tiles.length; end += tileBytes) {
    for (let at = end - 32; at < end; at += 2) tiles[at + 1] = 0x3c | (tiles[at + 1] & 0x81);
  }
}

test('another shape, and tiles that heads would cut', () => {
  const keys = (checkpoint: Checkpoint, keyDim: number) =>
    refusal(() =>
      resolveHeads(checkpoint, NAME, { step: 'head-keys', heads: 3, keyDim, valueDim: VALUE }, 192, keyDim),
    );
  expect(keys(fake({ [NAME]: ['BF16', [ROWS, LATENT]] }), 24).message).toMatch(/\[144, 64\], expected \[168, 64\]/);
  const odd = new Map([[NAME, { encoding: 'q8g64', rows: 168, columns: LATENT }]]);
  const tiles = fake({ [NAME]: ['U8', [layoutBytes('q8g64', 168, LATENT)]] }, { matrices: odd });
  expect(keys(tiles, 24).code).toBe('ROWS_NOT_SEPARABLE');
});
