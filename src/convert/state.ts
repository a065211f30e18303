/**
 * `coli.convert.json`: lies in the destination while a conversion is unfinished. It says from what and with which
 * parameters, and which shards are whole, so that another run continues instead of starting over, or refuses to mix.
 */

import fs from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { ConvertError } from '../common/errors.ts';
import { UNFINISHED_FILE } from '../formats/checkpoint.ts';
import { MAX_INDEX_BYTES, readJsonObject } from '../formats/json.ts';
import { jsonText, writeWhole } from './files.ts';

export const STATE_FILE = UNFINISHED_FILE;

const Sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const State = z.strictObject({
  version: z.literal(2),
  parameters: z.record(z.string(), z.union([z.string(), z.number()])),
  source: z.strictObject({
    /** Of a source on the hub: the commit that the revision stood for when the conversion began. */
    repo: z.strictObject({ id: z.string(), revision: z.string(), commit: z.string() }).nullable(),
    /** SHA-256 of config.json. */
    config: Sha256,
    /** version: time of the last change, or the digest that the hub lists. */
    files: z.array(z.strictObject({ name: z.string(), bytes: z.number(), version: z.string() })),
  }),
  /** Shard -> its size and the SHA-256 of each of its tensors. */
  finished: z.record(z.string(), z.strictObject({ bytes: z.number(), sha256: z.record(z.string(), Sha256) })),
});
export type ConvertState = z.infer<typeof State>;

export function newState(source: ConvertState['source'], parameters: ConvertState['parameters']): ConvertState {
  return { version: 2, parameters, source, finished: {} };
}

/** The state that lies in `directory`, or null. */
export function readState(directory: string): ConvertState | null {
  const path = join(directory, STATE_FILE);
  if (!fs.existsSync(path)) return null;
  const result = State.safeParse(readJsonObject(path, MAX_INDEX_BYTES));
  if (result.success) return result.data;
  throw new ConvertError('BAD_CONVERT_STATE', `${path} is damaged or of another version`, {
    hint: 'remove the destination directory and start again',
    details: { file: path },
    cause: result.error,
  });
}

export function writeState(directory: string, state: ConvertState): void {
  writeWhole(directory, STATE_FILE, jsonText(state));
}

/** Throws CONVERT_MIXED when an unfinished conversion was started from other files or with other parameters. */
export function requireSameConversion(directory: string, old: ConvertState, now: ConvertState): void {
  const differences: string[] = [];
  for (const key of new Set([...Object.keys(old.parameters), ...Object.keys(now.parameters)])) {
    const [was, is] = [old.parameters[key], now.parameters[key]];
    if (was !== is) differences.push(`${key} was ${was}, is now ${is}`);
  }
  const [was, is] = [old.source, now.source].map(({ repo }) => repo && `${repo.id}@${repo.revision} (${repo.commit})`);
  if (was !== is) differences.push(`the source was ${was ?? 'files here'}, is now ${is ?? 'files here'}`);
  else if (JSON.stringify(old.source) !== JSON.stringify(now.source)) {
    differences.push('the source files are not the same');
  }
  if (differences.length === 0) return;
  throw new ConvertError(
    'CONVERT_MIXED',
    `${directory} holds an unfinished conversion that differs from this one: ${differences.join('; ')}`,
    {
      hint: 'repeat the first command to finish it, or give another destination',
      details: { directory, differences },
    },
  );
}
