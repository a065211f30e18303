/**
 * For all tests together: a directory of their own for runtime files, so that no `coli stop` or `--attach` of the user meets their servers,
 * and one for compiled code, so that the many processes and threads that tests start compile each source once.
 */

import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** Called once, before the processes of the tests start, which inherit the variables. */
export default function setup(): () => void {
  const directory = mkdtempSync(path.join(tmpdir(), 'coli-tests-'));
  const runtime = path.join(directory, 'runtime');
  mkdirSync(runtime, { mode: 0o700 });
  process.env['XDG_RUNTIME_DIR'] = runtime;
  process.env['NODE_COMPILE_CACHE'] = path.join(directory, 'compiled');
  return () => rmSync(directory, { recursive: true, force: true });
}
