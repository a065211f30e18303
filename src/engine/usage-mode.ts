/** What is done with the history of a model's use. */

import fs from 'node:fs';
import { dirname, resolve } from 'node:path';
import { RequestError } from '../common/errors.ts';

const MODES: readonly string[] = ['on', 'read', 'off'];
/** A file of the user's own has one of these in its name, so that a mistyped mode makes no file. */
const OF_A_PATH = /[./\\]/;

/** `on`, `read` (use what is known, save nothing), `off`, or the path of a file instead of the usual place. */
export type UsageMode = 'on' | 'read' | 'off' | (string & {});

/** What is chosen where nobody chooses; modes in any case. Throws BAD_USAGE for a name that is neither a mode nor clearly a file. */
export function usageMode(mode: UsageMode | undefined): UsageMode {
  const chosen = mode ?? (process.env['COLI_USAGE'] || 'on');
  const word = chosen.toLowerCase();
  if (MODES.includes(word)) return word;
  if (!OF_A_PATH.test(chosen)) {
    throw wrongUsage(chosen, 'is none of on, read and off', `write --usage ./${chosen} for a file of that name`);
  }
  return chosen;
}

/** The history of use with which a model was opened. */
export interface UsageInfo {
  /** `file`: one that the user has named. */
  mode: 'on' | 'read' | 'off' | 'file';
  /** How many it knows of; 0: there is none yet. Older ones count less. */
  tokens: number;
}

/** What is told of it: no name of a file. */
export function usageInfo(mode: UsageMode | undefined): UsageInfo {
  const chosen = usageMode(mode);
  return { mode: MODES.includes(chosen) ? (chosen as UsageInfo['mode']) : 'file', tokens: 0 };
}

/** Directories are made for files of the program, not for those that the user names. Throws BAD_USAGE. */
export function requireDirectory(path: string): void {
  const directory = dirname(resolve(path));
  if (fs.statSync(directory, { throwIfNoEntry: false })?.isDirectory()) return;
  throw wrongUsage(
    path,
    `cannot be made: there is no directory ${directory}`,
    'make the directory, or name another one',
  );
}

/** BAD_USAGE: what --usage names cannot be a history. */
export function wrongUsage(path: string, why: string, hint: string): RequestError {
  return new RequestError('BAD_USAGE', `--usage (or COLI_USAGE): ${path} ${why}`, { hint, details: { file: path } });
}
