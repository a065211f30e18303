/** Every packer by the name that `PackStep.packer` carries. */

import { fp8, mxfp4, nvfp4 } from './packers/blocks.ts';
import { decoded } from './packers/decoded.ts';
import type { Packer } from './packers/packer.ts';
import { bfloatsToFloats, copy, halvesToFloats, rows, transpose, vector } from './packers/rows.ts';
import { TILE_PACKERS } from './packers/tiles.ts';

export type { Packer } from './packers/packer.ts';

export const PACKERS: Readonly<Record<string, Packer>> = {
  copy,
  rows,
  transpose,
  vector,
  'bf16-to-f32': bfloatsToFloats,
  'f16-to-f32': halvesToFloats,
  fp8,
  mxfp4,
  nvfp4,
  decoded,
  ...TILE_PACKERS,
};
