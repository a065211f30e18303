/** Where the history of a model's use lies: beside the model where that may be written, else in the program's cache. */

import fs from 'node:fs';
import { basename, dirname, join, resolve, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cacheDirectory } from '../common/user-directories.ts';

export const USAGE_FILE = 'coli.usage';

/** The program's own directory, two levels up both from src/engine and from dist/engine: its model is not ours to write to. */
const PACKAGE_ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** A revision in the cache of the hub's tools: other programs compare what lies there. */
const HUB_SNAPSHOT = /[/\\]models--[^/\\]+[/\\]snapshots[/\\][^/\\]+$/;

export interface UsagePlace {
  readonly path: string;
  readonly writable: boolean;
}

/** In the order of preference. `model`: what the user named, a directory or a GGUF file. */
export function usagePlaces(model: string, identity: string, packageRoot = PACKAGE_ROOT): UsagePlace[] {
  const inCache = { path: join(cacheDirectory(), 'usage', `${identity}.usage`), writable: true };
  const path = besideModel(model);
  const directory = dirname(path);
  if (isForeignGround(directory, packageRoot)) return [inCache];
  const beside = { path, writable: isWritable(directory) };
  return beside.writable ? [beside, inCache] : [inCache, beside];
}

/** Where the C engine keeps its own. */
export function modelFolder(model: string): string {
  return dirname(besideModel(model));
}

function besideModel(model: string): string {
  const isFile = fs.statSync(model, { throwIfNoEntry: false })?.isFile() === true;
  return isFile ? join(dirname(model), `${basename(model)}.${USAGE_FILE}`) : join(model, USAGE_FILE);
}

function isForeignGround(directory: string, packageRoot: string): boolean {
  const names = [resolve(directory), realPath(directory)];
  const root = realPath(packageRoot) + sep;
  return names.some(name => HUB_SNAPSHOT.test(name) || `${name}${sep}`.startsWith(root));
}

function realPath(path: string): string {
  try {
    return fs.realpathSync(path);
  } catch {
    return resolve(path);
  }
}

function isWritable(directory: string): boolean {
  try {
    fs.accessSync(directory, fs.constants.W_OK);
    return true;
  } catch {
    return false;
  }
}
