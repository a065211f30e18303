/** Entry of the command line: one command, one exit code. 0 ok, 1 error, 2 usage, 130 interrupted. */

import { ColiError, UsageError } from '../common/errors.ts';
import { flushOutput, guardOutput, reportError } from './output.ts';
import { EXIT_USAGE, runProgram } from './program.ts';

/** What only the engine can know to be a wrong flag. */
const WRONG_FLAGS: ReadonlySet<string> = new Set(['BAD_DRIVE_SPEEDS', 'BAD_MIRRORS', 'BAD_USAGE']);

/** Runs the command and ends the process with its exit code. */
export async function main(args: readonly string[]): Promise<never> {
  guardOutput();
  const end = args.indexOf('--');
  const json = (end < 0 ? args : args.slice(0, end)).includes('--json');
  let code: number;
  try {
    code = await runProgram(args);
    await flushOutput();
  } catch (error) {
    reportError(error, json);
    code = isWrongUsage(error) ? EXIT_USAGE : 1;
    await flushOutput().catch(failure => {
      // an error that was written as JSON is lost with it
      if (json && failure !== error) reportError(error, false);
      reportError(failure, false);
    });
  }
  // Explicit, so that nothing left behind (a worker, standard input) can keep a finished command alive.
  process.exit(code);
}

function isWrongUsage(error: unknown): boolean {
  return error instanceof UsageError || (error instanceof ColiError && WRONG_FLAGS.has(error.code));
}
