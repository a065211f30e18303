/** Token ids to hidden rows. */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import { requireFinite } from './finite.ts';

/** x rows = embedding rows of the tokens, as float32. */
export function embedTokens(compute: Compute, embedding: Matrix, ids: ArrayLike<number>, x: Tensor): void {
  compute.embed(embedding, ids, x);
  requireFinite(compute, x, ids.length, 'embedding of the input', null);
}
