/**
 * `coli.mirror.json` in a mirror: which files are whole copies of which model, and their SHA-256. It is replaced after every file,
 * so it never names one that is not there and checked.
 */

import fs from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { ColiError, StorageError } from '../common/errors.ts';
import { replaceFile } from '../common/whole-file.ts';
import { readJsonObject } from '../formats/json.ts';

export const RECEIPT_FILE = 'coli.mirror.json';
export const RECEIPT_VERSION = 1;
/** A line of 300 bytes for each of MAX_FILES. */
const MAX_RECEIPT_BYTES = 4 * 2 ** 20;
/** The largest published checkpoints have some hundred shards. */
const MAX_FILES = 10_000;
/** Longest file name of every common file system, in bytes. */
const MAX_NAME_CHARACTERS = 255;

/** A name in the directory itself: nothing that leads out of it, or would not be shown as it is. */
const Name = z
  .string()
  .max(MAX_NAME_CHARACTERS)
  .regex(/^(?!\.{1,2}$)[^/\\\p{Cc}]+$/u, 'is not the name of a file in this directory');
const Receipt = z.strictObject({
  version: z.literal(RECEIPT_VERSION),
  writer: z.string().max(200),
  /** Which model: a digest of its config and tensors. */
  model: z.string().regex(/^[0-9a-f]{64}$/),
  /** Where the model lay, for people. */
  source: z.string().max(4096),
  files: z
    .array(
      z.strictObject({
        name: Name,
        bytes: z.number().int().nonnegative(),
        mtimeMs: z.number().nonnegative(),
        sha256: z.string().regex(/^[0-9a-f]{64}$/),
      }),
    )
    .max(MAX_FILES)
    .refine(files => new Set(files.map(file => file.name)).size === files.length, 'names a file twice'),
});
export type Receipt = z.infer<typeof Receipt>;
export type ReceiptFile = Receipt['files'][number];

/** Null when there is none. Throws MIRROR_RECEIPT_BAD. */
export function readReceipt(directory: string): Receipt | null {
  const path = join(directory, RECEIPT_FILE);
  if (fs.lstatSync(path, { throwIfNoEntry: false }) === undefined) return null;
  let content: unknown;
  try {
    content = readJsonObject(path, MAX_RECEIPT_BYTES);
  } catch (error) {
    if (!(error instanceof ColiError)) throw error;
    throw bad(path, error.message, error);
  }
  const version = (content as { version?: unknown }).version;
  if (typeof version === 'number' && version > RECEIPT_VERSION) {
    throw bad(path, `${path} was written by a newer version of this program (format ${version})`);
  }
  const parsed = Receipt.safeParse(content);
  if (parsed.success) return parsed.data;
  const [{ path: where, message }] = parsed.error.issues;
  throw bad(path, `${path} is not a receipt of a mirror: ${['$', ...where].map(String).join('.')}: ${message}`);
}

/** What the receipt in a directory says of its files; empty without one. Throws MIRROR_RECEIPT_BAD. */
export function stagedFiles(directory: string): ReadonlyMap<string, ReceiptFile> {
  return new Map(readReceipt(directory)?.files.map(file => [file.name, file]));
}

/** Refuses a receipt of another model. Throws MIRROR_OTHER_MODEL. */
export function requireModel(receipt: Receipt | null, model: string, directory: string): void {
  if (receipt === null || receipt.model === model) return;
  throw new StorageError('MIRROR_OTHER_MODEL', `${directory} is a mirror of another model, ${receipt.source}`, {
    hint: 'give another directory, or remove the old mirror first',
    details: { directory, source: receipt.source },
  });
}

export function writeReceipt(directory: string, receipt: Receipt): void {
  replaceFile(join(directory, RECEIPT_FILE), `${JSON.stringify(receipt, null, 1)}\n`);
}

function bad(path: string, message: string, cause?: unknown): StorageError {
  return new StorageError('MIRROR_RECEIPT_BAD', message, {
    hint: `remove ${path}: the files of the mirror are then compared with the model again`,
    details: { file: path },
    cause,
  });
}
