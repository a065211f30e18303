/** Where files of the program itself may lie: what can be made again, and what a person would miss. */

import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';

type Environment = Readonly<Record<string, string | undefined>>;

/** For measurements and histories. It need not exist. */
export function cacheDirectory(env: Environment = process.env): string {
  return join(base(env['XDG_CACHE_HOME'], '.cache'), 'colibri');
}

/** For settings. It need not exist. */
export function configDirectory(env: Environment = process.env): string {
  return join(base(env['XDG_CONFIG_HOME'], '.config'), 'colibri');
}

/** The XDG rule: what is not an absolute path does not count. */
function base(given: string | undefined, fallback: string): string {
  return given !== undefined && isAbsolute(given) ? given : join(homedir(), fallback);
}
