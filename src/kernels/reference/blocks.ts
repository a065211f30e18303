/** Rows of block layouts as float32, element by element, as docs/formats.md defines their bytes. */

/** Row `row` of a matrix at byte `w` into `out` (one element per column). */
export function decodeBlockRow(
  _bytes: DataView,
  layout: number,
  _w: number,
  _columns: number,
  _row: number,
  _out: Float32Array,
): void {
  throw new RangeError(`layout ${layout} is not a block layout`);
}
