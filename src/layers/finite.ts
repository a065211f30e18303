/**
 * Where a value stops being finite is told at once and by name: later steps could hide it (an infinity under a clamp, an
 * expert that is never chosen), and nothing may be sampled from it.
 */

import { NumericError } from '../common/errors.ts';
import type { Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';

const DAMAGED = 'these weights may be damaged: compare the files with their source, or convert the model again';

/** Throws NON_FINITE naming the part ("attention") and its layer, if it has one, unless rows 0..n-1 of x are finite. */
export function requireFinite(compute: Compute, x: Tensor, n: number, part: string, layer: number | null): void {
  if (compute.allFinite(x, n)) return;
  const what = layer === null ? `the ${part}` : `the ${part} of layer ${layer}`;
  const details = layer === null ? {} : { layer };
  throw new NumericError('NON_FINITE', `${what} gave a value that is not finite`, { hint: DAMAGED, details });
}
