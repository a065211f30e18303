/** From where matrices lie to what is read: extents that several share are read once, parts find their place in them. */

import { alignUp } from '../common/units.ts';
import type { MatrixSource } from './encodings/source.ts';
import { layoutBytes } from './layouts.ts';
import type { Extent, PackStep, StoredPart, StoredRecord } from './stored.ts';

/** Packed parts start at multiples of this: a cache line, and enough for any vector load. */
const PACK_ALIGNMENT = 64;

/** Ranges of a file that touch or overlap become one extent, so an expert whose matrices follow each other is one read. */
export function mergeRanges(ranges: readonly Extent[]): Extent[] {
  const sorted = [...ranges].sort((a, b) => a.file - b.file || a.offset - b.offset);
  const extents: { file: number; offset: number; bytes: number }[] = [];
  for (const range of sorted) {
    const last = extents.at(-1);
    if (last && last.file === range.file && last.offset + last.bytes >= range.offset) {
      last.bytes = Math.max(last.bytes, range.offset + range.bytes - last.offset);
    } else extents.push({ ...range });
  }
  return extents;
}

/** Position of ranges in the extents that hold them. */
export function placer(extents: readonly Extent[]): (range: Extent) => { extent: number; offset: number } {
  return range => {
    const extent = extents.findIndex(
      each => each.file === range.file && range.offset >= each.offset && range.offset < each.offset + each.bytes,
    );
    return { extent, offset: range.offset - extents[extent].offset };
  };
}

/** One part per source. `whole`: read this extent instead (a container record with its padding, as it is hashed). */
export function recordOf(
  name: string,
  sources: readonly MatrixSource[],
  sha256: string | null,
  whole: Extent | null = null,
): StoredRecord {
  const extents = whole ? [whole] : mergeRanges(sources.flatMap(source => source.ranges));
  const place = placer(extents);
  const packed = sources.some(source => source.packer !== null);
  const parts = sources.map(({ encoding, layout, rows, columns, ranges, fileBytes }): StoredPart => {
    return { encoding, layout, rows, columns, fileBytes, source: packed ? null : place(ranges[0]) };
  });
  const packs: PackStep[] = [];
  let target = 0;
  for (const source of packed ? sources : []) {
    const { layout, rows, columns, params } = source;
    const bytes = layoutBytes(layout, rows, columns);
    const inputs = source.ranges.map(range => ({ ...place(range), bytes: range.bytes }));
    packs.push({ packer: source.packer ?? 'copy', rows, columns, params, inputs, target, bytes });
    target = alignUp(target + bytes, PACK_ALIGNMENT);
  }
  return { name, extents, parts, packs, sha256 };
}

/** Encoding -> bytes on disk, for reports. */
export function encodingTable(records: Iterable<StoredRecord>): Record<string, number> {
  const table: Record<string, number> = {};
  for (const record of records) {
    for (const part of record.parts) table[part.encoding] = (table[part.encoding] ?? 0) + part.fileBytes;
  }
  return table;
}
