/** For all tests together: a directory of their own for runtime files, so that no `coli stop` or `--attach` of the user meets their servers. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** Called once, before the processes of the tests start, which inherit the variable. */
export default function setup(): () => void {
  const directory = mkdtempSync(path.join(tmpdir(), 'coli-tests-'));
  process.env['XDG_RUNTIME_DIR'] = directory;
  return () => rmSync(directory, { recursive: true, force: true });
}
