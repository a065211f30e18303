/** How this engine is opened for a measurement, and the memory that its plan then asks for. */

import type { EngineOptions, KernelChoice } from '../../src/engine/api.ts';
import { readModel } from '../../src/engine/model-files.ts';
import { planModel } from '../../src/engine/model-plan.ts';
import type { ModelShape } from '../../src/models/family.ts';
import { engineOptions } from '../subject.ts';
import { contextTokens, type OurRequest } from './work.ts';

export function ourOptions({ model, threads, kernels, share, work }: OurRequest, shape: ModelShape): EngineOptions {
  const settings = { model, threads, readers: undefined, kernels: kernels as KernelChoice, share };
  return {
    ...engineOptions(settings, shape, contextTokens(work)),
    chunk: Math.max(work.warmTokens, work.promptTokens),
  };
}

/** Bytes that the whole process may hold: what a limit has to allow. */
export function plannedBytes(request: OurRequest): number {
  const files = readModel(request);
  return planModel(files, ourOptions(request, files.shape)).summary.total;
}
