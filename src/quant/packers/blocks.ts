/** Packers that put a row's scales beside its codes. They copy bytes and are limited by memory. */

import { ColiError } from '../../common/errors.ts';
import { BLOCKS, blockRowBytes, FP8_BLOCK, layoutBytes } from '../layouts.ts';
import { expectBytes, KIND_BYTES, numbersOf, type Packer } from './packer.ts';

/**
 * inputs: e4m3 codes, the scales of all `of` rows. params: rows of a scale, kind of the scales, of, first, step: the codes are
 * those of rows first, first + step, ... with the rows between them.
 */
export const fp8: Packer = ([codes, scaleBytes], rows, columns, out, params = []) => {
  const [blockRows, kind, of, first, step] = params;
  const blocks = Math.ceil(columns / FP8_BLOCK);
  expectBytes('fp8', 'the weights', codes.byteLength, ((rows - 1) * step + 1) * columns);
  expectBytes('fp8', 'the scales', scaleBytes.byteLength, Math.ceil(of / blockRows) * blocks * KIND_BYTES[kind]);
  expectBytes('fp8', 'the output', out.byteLength, layoutBytes('fp8', rows, columns));
  const { buffer, byteOffset, byteLength } = numbersOf(scaleBytes, kind);
  const scales = new Uint8Array(buffer, byteOffset, byteLength);
  const head = blocks * 4;
  for (let r = 0, at = 0; r < rows; r++) {
    const scale = Math.floor((first + r * step) / blockRows) * head;
    out.set(scales.subarray(scale, scale + head), at);
    at += head;
    const from = r * step * columns;
    out.set(codes.subarray(from, from + columns), at);
    at += columns;
  }
};

/** inputs: codes [rows, columns / 2], e8m0 scales [rows, columns / 32], both with the rows between. params: step. */
export const mxfp4: Packer = ([codes, scales], rows, columns, out, params = []) => {
  const [step] = params;
  const stored = (rows - 1) * step + 1;
  const codeBytes = columns / 2;
  const scaleBytes = columns / BLOCKS.mxfp4.columns;
  expectBytes('mxfp4', 'the weights', codes.byteLength, stored * codeBytes);
  expectBytes('mxfp4', 'the scales', scales.byteLength, stored * scaleBytes);
  expectBytes('mxfp4', 'the output', out.byteLength, layoutBytes('mxfp4', rows, columns));
  for (let r = 0, at = 0; r < rows; r++) {
    out.set(codes.subarray(r * step * codeBytes, r * step * codeBytes + codeBytes), at);
    at += codeBytes;
    out.set(scales.subarray(r * step * scaleBytes, r * step * scaleBytes + scaleBytes), at);
    at += scaleBytes;
  }
};

/** A factor that makes the largest weight of a tensor out of 6 * 448 is far below 1. */
export function isReciprocal(globalScale: number): boolean {
  return globalScale >= 1;
}

/** inputs: codes [rows, columns / 2], e4m3 scales [rows, columns / 16], the float32 of the tensor. params: step. */
export const nvfp4: Packer = ([codes, scales, factor], rows, columns, out, params = []) => {
  const [step] = params;
  const stored = (rows - 1) * step + 1;
  const codeBytes = columns / 2;
  const scaleBytes = columns / BLOCKS.nvfp4.columns;
  expectBytes('nvfp4', 'the weights', codes.byteLength, stored * codeBytes);
  expectBytes('nvfp4', 'the scales', scales.byteLength, stored * scaleBytes);
  expectBytes('nvfp4', 'the global scale', factor.byteLength, 4);
  expectBytes('nvfp4', 'the output', out.byteLength, rows * blockRowBytes('nvfp4', columns));
  const value = numbersOf(factor, 0)[0];
  if (isReciprocal(value)) {
    throw new ColiError(
      'SCALE_RECIPROCAL',
      `nvfp4: the global scale is ${value}, which is the reciprocal of a factor`,
      {
        details: { expected: 'below 1', got: value },
      },
    );
  }
  for (let r = 0, at = 0; r < rows; r++) {
    out.set(factor, at);
    out.set(scales.subarray(r * step * scaleBytes, r * step * scaleBytes + scaleBytes), at + 4);
    at += 4 + scaleBytes;
    out.set(codes.subarray(r * step * codeBytes, r * step * codeBytes + codeBytes), at);
    at += codeBytes;
  }
};
