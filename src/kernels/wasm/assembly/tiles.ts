// matmulTiles: panels outside, so that a panel stays in the first cache while all activation rows pass over it.

import { isQ8, isWide, rowOf, tileBytes } from './layouts';
import { q4Half2, q4Half4, q4Panel1 } from './tiles-q4';
import { q8Panel1 } from './tiles-q8';

function q4Panel<S>(
  w: usize, count: i32, groups: i32, codes: usize, scales: usize, sums: usize, xIndex: usize,
  y: usize, yStride: usize, yIndex: usize, n: i32,
): void {
  let i = 0;
  // The blocked kernels write 8 rows at a time; a ragged panel takes its activation rows one by one.
  if (count >= 16) {
    for (; i + 4 <= n; i += 4) {
      const x0 = rowOf(xIndex, i), x1 = rowOf(xIndex, i + 1), x2 = rowOf(xIndex, i + 2), x3 = rowOf(xIndex, i + 3);
      const y0 = y + (rowOf(yIndex, i) * yStride << 2), y1 = y + (rowOf(yIndex, i + 1) * yStride << 2);
      const y2 = y + (rowOf(yIndex, i + 2) * yStride << 2), y3 = y + (rowOf(yIndex, i + 3) * yStride << 2);
      q4Half4<S>(0, w, groups, codes, scales, sums, x0, x1, x2, x3, y0, y1, y2, y3);
      q4Half4<S>(1, w, groups, codes, scales, sums, x0, x1, x2, x3, y0, y1, y2, y3);
    }
    for (; i + 2 <= n; i += 2) {
      const x0 = rowOf(xIndex, i), x1 = rowOf(xIndex, i + 1);
      const y0 = y + (rowOf(yIndex, i) * yStride << 2), y1 = y + (rowOf(yIndex, i + 1) * yStride << 2);
      q4Half2<S>(0, w, groups, codes, scales, sums, x0, x1, y0, y1);
      q4Half2<S>(1, w, groups, codes, scales, sums, x0, x1, y0, y1);
    }
  }
  for (; i < n; i++) {
    const at = rowOf(xIndex, i) * groups;
    const out = y + (rowOf(yIndex, i) * yStride << 2);
    q4Panel1<S>(w, groups, codes + (at << 6), scales + (at << 2), sums + (at << 2), out, count);
  }
}

function q8Panel<S>(
  w: usize, count: i32, groups: i32, codes: usize, scales: usize, xIndex: usize,
  y: usize, yStride: usize, yIndex: usize, n: i32,
): void {
  for (let i = 0; i < n; i++) {
    const at = rowOf(xIndex, i) * groups;
    const out = y + (rowOf(yIndex, i) * yStride << 2);
    q8Panel1<S>(w, groups, codes + (at << 6), scales + (at << 2), out, count);
  }
}

export function matmulTiles(
  layout: i32, w: usize, rows: i32, groups: i32, codes: usize, scales: usize, sums: usize, xIndex: usize,
  y: usize, yStride: usize, yIndex: usize, n: i32, panel0: i32, panel1: i32,
): void {
  const panelBytes = <usize>groups * tileBytes(layout);
  for (let panel = panel0; panel < panel1; panel++) {
    const p = w + <usize>panel * panelBytes;
    const out = y + (<usize>panel << 6);
    const count = rows - (panel << 4);
    if (isQ8(layout)) {
      if (isWide(layout)) q8Panel<f32>(p, count, groups, codes, scales, xIndex, out, yStride, yIndex, n);
      else q8Panel<u16>(p, count, groups, codes, scales, xIndex, out, yStride, yIndex, n);
    } else {
      if (isWide(layout)) q4Panel<f32>(p, count, groups, codes, scales, sums, xIndex, out, yStride, yIndex, n);
      else q4Panel<u16>(p, count, groups, codes, scales, sums, xIndex, out, yStride, yIndex, n);
    }
  }
}
