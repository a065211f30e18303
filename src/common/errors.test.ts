import { expect, test } from 'vitest';
import { errorFromWire, errorToWire, InternalError, StorageError } from './errors.ts';

const system = (code: string) => Object.assign(new Error(`${code}: too many open files, open 'a'`), { code });

test.each([
  ['a file that cannot be opened', system('EMFILE')],
  ['the whole system', new StorageError('FILE_OPEN_FAILED', 'a cannot be opened', { cause: system('ENFILE') })],
  [
    'a thread that cannot start',
    new InternalError('READER_DIED', 'reader 0 could not start', {
      cause: Object.assign(new Error('Worker initialization failure: EMFILE'), { code: 'ERR_WORKER_INIT_FAILED' }),
    }),
  ],
  ['a module that cannot be loaded', new Error('Cannot read package config /a/package.json: too many open files')],
])('too few open files are allowed for %s: no bug, and it is said what helps', (_, error) => {
  const wire = errorToWire(error);
  expect(wire).toMatchObject({ class: 'StorageError', code: 'TOO_MANY_FILES' });
  expect(wire.message).toContain(error.message);
  expect(wire.hint).toContain('ulimit -n');
  // also after another thread
  expect(errorToWire(errorFromWire(wire))).toMatchObject({ message: wire.message });
});

test('any other error stays what it is', () => {
  const cause = Object.assign(new Error('permission denied'), { code: 'EACCES' });
  const error = new InternalError('READER_DIED', 'reader 0 could not start', { cause });
  expect(errorToWire(error)).toMatchObject({ class: 'InternalError', code: 'READER_DIED' });
  const round = new Error('round');
  round.cause = round;
  expect(errorToWire(round)).toMatchObject({ code: 'INTERNAL', message: 'round' });
});
