/** What went wrong with a load, as an error for people: file, place, counts and the next step. */

import { StorageError } from '../common/errors.ts';
import type { FileIdentity } from '../formats/checkpoint-types.ts';
import type { RecordTable } from './record-table.ts';
import type { Failure } from './request-queue.ts';

/** The others go on, but what a dead thread was about to read is lost. */
export const START_AGAIN =
  'start again; if it comes back it is a bug: please report it with the stack that COLI_DEBUG=1 prints';

/** `files`: those that the record was read from, for their paths. */
export function readError(
  failure: Failure,
  table: RecordTable,
  record: number,
  files: readonly FileIdentity[],
): StorageError {
  const name = table.name(record);
  const file = files[failure.file]?.path;
  const { code, offset, expected, got, text } = failure;
  const details: Record<string, unknown> = { record: name, file, offset, expected, got };
  const where = `${name}: ${file} at byte ${offset}`;
  switch (code) {
    case 'READ_FAILED':
      return new StorageError(code, `${where}: read failed (${text})`, {
        details: { ...details, errno: text },
        hint: 'check the disk (dmesg, SMART) and whether the file can be read with other tools',
      });
    case 'SHORT_READ':
      return new StorageError(code, `${where}: the file ended after ${got} of ${expected} bytes`, {
        details,
        hint: 'the file was cut or replaced while in use: restore it and start again',
      });
    case 'HASH_MISMATCH': {
      const sha256 = Buffer.from(table.hash(record) ?? []).toString('hex');
      return new StorageError(code, `${where}: SHA-256 is ${text}, the container says ${sha256}`, {
        details: { record: name, file, offset, expected: sha256, got: text },
        hint: 'the file is damaged: download or convert it again',
      });
    }
    case 'PACK_FAILED':
      return new StorageError(code, `${name}: packing failed: ${text}`, {
        details: { record: name },
        hint: 'the weights may be damaged: try --verify, or convert the model again',
      });
    case 'READER_DIED':
      return new StorageError(code, `${name}: its reader thread died: ${text}`, {
        details: { record: name },
        hint: START_AGAIN,
      });
  }
}
