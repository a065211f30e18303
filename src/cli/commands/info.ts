/** coli info: what the model is, what the machine has, and what would be where. */

import { flagNotes, modelDirectory, packageVersion, withTuned } from '../model.ts';
import type { EngineFlags } from '../options.ts';
import { writeJson, writeText } from '../output.ts';
import { infoJson, infoText } from '../report.ts';

/** Reads headers only: no weights are loaded and no threads started. */
export async function modelInfo(flags: EngineFlags & { json?: boolean }): Promise<number> {
  const directory = modelDirectory(flags, flags.json === true);
  const { inspectModel } = await import('../../engine/describe.ts');
  const { value: info, notes } = await withTuned(flags, directory, inspectModel);
  const told = { ...info, notes: [...flagNotes(flags), ...notes, ...info.notes] };
  if (flags.json) writeJson(infoJson(packageVersion(), told));
  else {
    const name = flags.model === undefined || flags.model === directory ? '' : `${flags.model}, in `;
    writeText(infoText(packageVersion(), { ...told, directory: name + info.directory }, flags.kernels));
  }
  return 0;
}
