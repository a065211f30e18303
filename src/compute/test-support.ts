/** Compute objects on small arenas, for the tests of this folder. */

import { selectKernels } from '../kernels/select.ts';
import { Arenas, WASM_PAGE } from './arenas.ts';
import { Compute } from './compute.ts';

export interface Built<T> {
  readonly compute: Compute;
  readonly made: T;
}

/** Reserves with `make`, commits, starts the lanes, uses, closes. */
export async function withCompute<T, R>(
  options: { lanes: number; exact?: boolean; pages?: number },
  make: (compute: Compute) => T,
  use: (built: Built<T>) => R | Promise<R>,
): Promise<R> {
  const arenas = new Arenas((options.pages ?? 64) * WASM_PAGE);
  const compute = new Compute(arenas, { lanes: options.lanes, exact: options.exact ?? false, scratchFloats: 512 });
  compute.lanes.minChunkCost = 10_000;
  const made = make(compute);
  arenas.commit();
  await compute.start(selectKernels('auto'));
  try {
    return await use({ compute, made });
  } finally {
    await compute.close();
  }
}
