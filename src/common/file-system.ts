/** Small things about files that several folders need. */

import fs from 'node:fs';
import { dirname } from 'node:path';

/** The name that the system gives an error, such as ENOSPC; the error itself where there is none. */
export function codeOf(error: unknown): string {
  return (error as NodeJS.ErrnoException).code ?? String(error);
}

/** With all its parents. Node's own way never returns where a file system accepts no directories, as in /proc. */
export function makeDirectory(path: string, mode = 0o700): void {
  const missing: string[] = [];
  for (let at = path; !fs.existsSync(at); at = dirname(at)) missing.unshift(at);
  for (const each of missing) fs.mkdirSync(each, { mode });
}
