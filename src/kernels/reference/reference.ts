/** The oracle: every kernel in plain TypeScript, one float32 operation at a time. Slow on purpose. */

import type { Kernels } from '../kernels.ts';
import { attentionKernels } from './attention.ts';
import { deltaKernels } from './delta.ts';
import { matrixKernels } from './matrices.ts';
import { referenceMemory } from './memory.ts';
import { routingKernels } from './routing.ts';
import { rowKernels } from './rows.ts';

export function createReferenceKernels(memory: WebAssembly.Memory): Kernels {
  const views = referenceMemory(memory);
  return {
    name: 'reference',
    ...matrixKernels(views),
    ...rowKernels(views),
    ...attentionKernels(views),
    ...routingKernels(views),
    ...deltaKernels(views),
  };
}
