/** coli info: what the model is, what the machine has, and what would be where. */

import { Interrupts } from '../interrupts.ts';
import { openModel, packageVersion } from '../model.ts';
import type { EngineFlags } from '../options.ts';
import { writeJson, writeText } from '../output.ts';
import { infoJson, infoText } from '../report.ts';

export async function info(flags: EngineFlags & { json?: boolean }): Promise<number> {
  new Interrupts().listen();
  const engine = await openModel(flags, flags.json === true);
  await engine.close();
  if (flags.json) writeJson(infoJson(packageVersion(), engine.info));
  else writeText(infoText(packageVersion(), engine.info));
  return 0;
}
