/** `coli convert`: rewrites a checkpoint as a container, shard by shard. Run again after any interruption, it continues. */

import fs from 'node:fs';
import { ConvertError } from '../common/errors.ts';
import { destinationError } from './files.ts';
import { lockDestination } from './lock.ts';
import { planConversion, planDestination, sourceOf } from './plan.ts';
import { Run } from './run.ts';
import type { ConversionPlan, ConversionReport, ConvertOptions } from './types.ts';

export { planConversion };

/** Converts; resolves when the destination is complete and was opened again. Rejects with ConvertError or ModelFileError. */
export async function convertCheckpoint(options: ConvertOptions): Promise<ConversionReport> {
  const started = performance.now();
  const source = sourceOf(options);
  const planned = planConversion({ ...options, source });
  let unlock = (): void => {};
  try {
    fs.mkdirSync(planned.destination, { recursive: true });
    unlock = lockDestination(planned.destination);
    // another process may have written there since the plan was made
    const plan = { ...planned, ...planDestination(options, source, planned.shards) };
    const run = new Run(plan, source, options);
    try {
      const { kept, written } = await run.all();
      const seconds = (performance.now() - started) / 1000;
      return { plan, kept, written, bytes: plan.totalBytes, fetchedBytes: run.fetchedBytes, seconds };
    } finally {
      await run.close();
    }
  } catch (error) {
    throw options.signal?.aborted ? stopped(planned) : destinationError(planned.destination, error);
  } finally {
    unlock();
  }
}

function stopped({ destination }: ConversionPlan): ConvertError {
  return new ConvertError('CONVERT_STOPPED', `the conversion was stopped; ${destination} is incomplete`, {
    hint: 'give the same command again to continue',
    details: { destination },
  });
}
