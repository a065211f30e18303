/** coli eval oracle: exit code 0 when the engine agrees with the reference, 1 with the first difference when not. */

import { evalOracle } from '../../eval/oracle.ts';
import { oracleJson, oracleText } from '../eval-report.ts';
import { Interrupts } from '../interrupts.ts';
import { flagNotes } from '../model.ts';
import { type EngineFlags, engineOptions } from '../options.ts';
import { note, writeJson, writeText } from '../output.ts';

export async function oracle(directory: string, flags: EngineFlags & { json?: boolean }): Promise<number> {
  new Interrupts().listen();
  for (const line of flagNotes(flags)) note(line, flags.json);
  const report = await evalOracle(directory, engineOptions(flags, directory));
  if (flags.json) writeJson(oracleJson(directory, report));
  else writeText(oracleText(report));
  if (!report.passed && flags.activations !== 'exact') {
    note(
      'the reference has float32 activations; integer formats use int8 ones unless --activations exact is given',
      flags.json,
    );
  }
  return report.passed ? 0 : 1;
}
