/** coli doctor: looks at the machine and the model, and says what is wrong and what to do. Writes nothing. */

import { UsageError } from '../../common/errors.ts';
import { doctorJson } from '../../doctor/report.ts';
import { runDoctor } from '../../doctor/run.ts';
import type { EngineOptions } from '../../engine/api.ts';
import { doctorLines } from '../doctor-report.ts';
import { EXIT_INTERRUPTED, Interrupts } from '../interrupts.ts';
import { modelDirectory, packageVersion, tunedWithoutMemory } from '../model.ts';
import { type EngineFlags, engineOptions } from '../options.ts';
import { writeJson, writeLine } from '../output.ts';
import { byteAmount, Progress } from '../progress.ts';

export interface DoctorFlags extends EngineFlags {
  deep?: boolean;
  quick?: boolean;
  json?: boolean;
}

export async function doctor(flags: DoctorFlags): Promise<number> {
  const interrupts = new Interrupts();
  interrupts.listen();
  const progress = new Progress();
  const located = locate(flags);
  const { model: _, ...options } = located.options;
  const report = await interrupts
    .during(signal =>
      runDoctor({
        ...options,
        locate: located.directory,
        deep: flags.deep,
        quick: flags.quick,
        signal,
        onProgress: ({ id, doneBytes, totalBytes }) => {
          if (!flags.json) progress.update(`${id}:`, doneBytes, totalBytes, byteAmount);
        },
      }),
    )
    .finally(() => progress.clear());
  if (flags.json) writeJson(doctorJson(packageVersion(), report));
  else for (const line of doctorLines(report, process.stdout)) writeLine(line);
  if (report.interrupted) return EXIT_INTERRUPTED;
  return report.status === 'error' ? 1 : 0;
}

/** A model that cannot be found is a finding like any other; `directory` then throws. */
function locate(flags: DoctorFlags): { options: EngineOptions; directory: () => string } {
  try {
    const directory = modelDirectory(flags, flags.json === true);
    return { options: tunedWithoutMemory(flags, directory), directory: () => directory };
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const directory = () => {
      throw error;
    };
    return { options: engineOptions(flags, ''), directory };
  }
}
