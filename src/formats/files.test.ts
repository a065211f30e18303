/** What the file system refuses comes out as a named error with the file and a hint. */

import fs from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { copyPack, refusalOf, temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { openCheckpoint } from './checkpoint.ts';
import { namesIn, statOf } from './files.ts';

/** A link that leads to itself. */
function loop(path: string): string {
  fs.rmSync(path, { force: true });
  fs.symlinkSync(path, path);
  return path;
}

function expectUnreadable(act: () => unknown, file: string, errno: string, hint: RegExp): void {
  const error = refusalOf(act);
  expect(error).toMatchObject({ code: 'FILE_UNREADABLE', details: { file, errno } });
  expect(error.message).toContain(`${file} cannot be read`);
  expect(error.hint).toMatch(hint);
}

describe('a model directory', () => {
  test('that is a link to itself', () => {
    const path = loop(join(temporaryDirectory(), 'model'));
    expectUnreadable(() => openCheckpoint(path), path, 'ELOOP', /leads back to itself/);
  });

  test('with a name that no file system takes', () => {
    const path = join(temporaryDirectory(), 'm'.repeat(300));
    expectUnreadable(() => openCheckpoint(path), path, 'ENAMETOOLONG', /shorter path/);
  });

  test.each(['config.json', 'generation_config.json'])('whose %s is a link to itself', name => {
    const model = copyPack();
    const path = loop(join(model, name));
    expectUnreadable(() => openCheckpoint(model), path, 'ELOOP', /leads back to itself/);
  });

  // root may read everything
  test.skipIf(process.getuid?.() === 0)('that may not be read', () => {
    for (const mode of [0o000, 0o300, 0o600]) {
      const model = copyPack();
      fs.chmodSync(model, mode);
      const error = refusalOf(() => openCheckpoint(model));
      fs.chmodSync(model, 0o700);
      expect(error).toMatchObject({ code: 'FILE_UNREADABLE', hint: expect.stringContaining('permissions') });
    }
  });
});

test('looking for what is not there is no error; a file where a directory should be is one', () => {
  const directory = temporaryDirectory();
  const file = join(directory, 'file');
  fs.writeFileSync(file, '');
  expect(statOf(join(directory, 'none'))).toBeUndefined();
  expect(namesIn(directory)).toEqual(['file']);
  expectUnreadable(() => namesIn(file), file, 'ENOTDIR', /check/);
});
