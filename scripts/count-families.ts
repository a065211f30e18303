/** Prints how many lines each model family takes, its tests apart, and fails when one has outgrown its file. */

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

/** A family is one file that composes layers; longer ones hold a mechanism that belongs into `layers`. */
export const MAX_FAMILY_LINES = 270;

const MODELS = path.join(import.meta.dirname, '..', 'src', 'models');

export interface FamilyFile {
  readonly name: string;
  /** The model types that it registers. */
  readonly types: readonly string[];
  readonly lines: number;
}

/** Files of a folder that say which `model_type` they are for, by name. */
export function familyFiles(directory: string = MODELS): FamilyFile[] {
  return readdirSync(directory)
    .filter(name => name.endsWith('.ts') && !name.endsWith('.test.ts'))
    .map(name => {
      const source = readFileSync(path.join(directory, name), 'utf8');
      const types = [...source.matchAll(/\bmodelType: '(\w+)'/g)].map(([, type]) => type);
      return { name, types, lines: source.split('\n').length - 1 };
    })
    .filter(({ types }) => types.length > 0);
}

function main(): void {
  const files = familyFiles();
  for (const { name, types, lines } of files) console.log(`${String(lines).padStart(4)}  ${name}  ${types.join(', ')}`);
  const outgrown = files.filter(({ lines }) => lines > MAX_FAMILY_LINES);
  for (const { name, lines } of outgrown) console.error(`${name} has ${lines} lines, at most ${MAX_FAMILY_LINES}`);
  if (outgrown.length > 0) process.exitCode = 1;
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) main();
