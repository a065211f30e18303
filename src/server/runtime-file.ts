/** One file per running server, for `coli stop` and other programs of the same user: who it is and how to reach it. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import * as z from 'zod';
import { StorageError } from '../common/errors.ts';
import { isRunning } from '../common/process-lock.ts';

/** A file of this size was not written by a server. */
const MAX_FILE_BYTES = 16 * 1024;

const RuntimeEntry = z.object({
  pid: z.int().positive(),
  start: z.string().nullable(),
  host: z.string(),
  port: z.int().min(1).max(65535),
  /** Accepted in place of the API key. */
  token: z.string(),
  model: z.string(),
  graceMs: z.number().nonnegative(),
});
export type RuntimeEntry = z.infer<typeof RuntimeEntry>;

/** The user's own directory for such files; made when it is not there. Throws RUNTIME_DIRECTORY. */
export function runtimeDirectory(env: NodeJS.ProcessEnv = process.env, temporary = os.tmpdir()): string {
  const base = env['XDG_RUNTIME_DIR'];
  const own = base !== undefined && path.isAbsolute(base);
  const directory = own ? path.join(base, 'colibri') : path.join(temporary, `colibri-${os.userInfo().uid}`);
  try {
    fs.mkdirSync(directory, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw unusable(directory, (error as Error).message);
  }
  const stat = fs.lstatSync(directory);
  // the temporary directory belongs to everybody: another user may have been here first
  const uid = process.getuid?.() ?? stat.uid;
  if (!stat.isDirectory() || stat.uid !== uid) throw unusable(directory, 'it is not a directory of this user');
  if ((stat.mode & 0o077) !== 0 && process.platform !== 'win32') fs.chmodSync(directory, 0o700);
  return directory;
}

/** Writes the file of a server; the returned function removes it. */
export function writeRuntimeFile(directory: string, entry: RuntimeEntry): () => void {
  const file = path.join(directory, `${entry.pid}.json`);
  const partial = `${file}.part`;
  // a file of an earlier process with this number may be there, with other rights
  fs.rmSync(partial, { force: true });
  fs.writeFileSync(partial, `${JSON.stringify(entry)}\n`, { mode: 0o600, flag: 'wx' });
  fs.renameSync(partial, file);
  return () => fs.rmSync(file, { force: true });
}

/** Servers whose processes run, in order of their ports. Files of processes that are gone are removed. */
export function runningServers(directory: string): RuntimeEntry[] {
  const found: RuntimeEntry[] = [];
  for (const name of fs.readdirSync(directory)) {
    if (!/^\d+\.json$/.test(name)) continue;
    const file = path.join(directory, name);
    const entry = readEntry(file);
    if (entry && name === `${entry.pid}.json` && isRunning(entry)) found.push(entry);
    else fs.rmSync(file, { force: true });
  }
  return found.sort((a, b) => a.port - b.port);
}

function readEntry(file: string): RuntimeEntry | null {
  try {
    const stat = fs.lstatSync(file);
    if (!stat.isFile() || stat.size > MAX_FILE_BYTES) return null;
    return RuntimeEntry.parse(JSON.parse(fs.readFileSync(file, 'utf8')));
  } catch {
    return null;
  }
}

function unusable(directory: string, reason: string): StorageError {
  return new StorageError('RUNTIME_DIRECTORY', `${directory} cannot hold the files of running servers: ${reason}`, {
    hint: 'set XDG_RUNTIME_DIR to a directory of your own',
    details: { directory },
  });
}
