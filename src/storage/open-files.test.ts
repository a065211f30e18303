import { constants, openSync, readdirSync } from 'node:fs';
import { afterAll, describe, expect, test } from 'vitest';
import { closeFiles, type OpenFunction, openFiles } from './open-files.ts';
import { TestFiles } from './test-support.ts';

const files = new TestFiles();
files.add(5000);
files.add(0);
const paths = files.files.map(file => file.path);
afterAll(() => files.remove());

/** A file system that refuses direct reads of some files. */
function refusing(which: (path: string) => boolean): OpenFunction {
  return (path, flags) => {
    if ((flags & constants.O_DIRECT) !== 0 && which(path)) throw Object.assign(new Error('no'), { code: 'EINVAL' });
    return openSync(path, flags);
  };
}

const openDescriptors = () => readdirSync('/proc/self/fd').length;

describe('opening', () => {
  test('buffered reads are not worth a note when they were asked for', () => {
    const { descriptors, direct, note } = openFiles(paths, 'buffered');
    closeFiles(descriptors);
    expect([descriptors.length, direct, note]).toEqual([2, false, null]);
  });

  test('direct, an empty file too', () => {
    const { descriptors, direct, note } = openFiles(paths, 'auto');
    closeFiles(descriptors);
    expect([direct, note]).toEqual([true, null]);
  });

  test('falls back where direct reads are refused, and says so once', () => {
    const opened = openFiles(
      paths,
      'auto',
      refusing(() => true),
    );
    closeFiles(opened.descriptors);
    expect(opened.direct).toBe(false);
    expect(opened.note).toMatch(/^direct reads are refused for the model files \(EINVAL, .*0\.bin\)/);
  });

  test('one file that falls back is counted', () => {
    const opened = openFiles(
      paths,
      'auto',
      refusing(path => path === paths[1]),
    );
    closeFiles(opened.descriptors);
    expect(opened.direct).toBe(false);
    expect(opened.note).toContain('1 of 2 files');
  });

  test('insisting on direct reads is an error then, and leaves nothing open', () => {
    const before = openDescriptors();
    const open = refusing(path => path === paths[1]);
    expect(() => openFiles(paths, 'direct', open)).toThrow(
      expect.objectContaining({ code: 'DIRECT_IO_REFUSED', details: { file: paths[1], errno: 'EINVAL' } }),
    );
    expect(openDescriptors()).toBe(before);
  });

  test('a missing file is named, and leaves nothing open', () => {
    const before = openDescriptors();
    const missing = `${files.directory}/no such file`;
    for (const mode of ['auto', 'buffered'] as const) {
      expect(() => openFiles([paths[0], missing], mode)).toThrow(
        expect.objectContaining({ code: 'FILE_OPEN_FAILED', message: expect.stringContaining(missing) }),
      );
    }
    expect(openDescriptors()).toBe(before);
  });
});
