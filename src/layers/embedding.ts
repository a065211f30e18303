/** Token ids to hidden rows. */

import type { Tensor } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import type { Matrix } from '../compute/matrix.ts';
import type { Batch } from './batch.ts';
import { requireFinite } from './finite.ts';

/** x rows = embedding rows of the batch's tokens, as float32. */
export function embedTokens(compute: Compute, embedding: Matrix, batch: Batch, x: Tensor): void {
  compute.embed(embedding, batch.ids, x);
  requireFinite(compute, x, batch.rows, 'embedding of the input', null);
}
