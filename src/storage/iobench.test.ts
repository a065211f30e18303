import { afterAll, describe, expect, test } from 'vitest';
import { measureDisk } from './iobench.ts';
import { TestFiles } from './test-support.ts';

const files = new TestFiles();
files.add(2 ** 20 + 1);
const { path } = files.files[0];
afterAll(() => files.remove());

describe('measureDisk', () => {
  test.each([true, false])('reads the bytes it was asked for (direct: %s)', async direct => {
    const result = await measureDisk({ path, blockBytes: 65536, depth: 2, totalBytes: 2 ** 20, direct });
    expect(result.bytes).toBe(2 ** 20);
    expect(result.reads).toBe(16);
    expect(result.bytesPerSecond).toBeCloseTo(result.bytes / result.seconds, 0);
    expect(result.p99ReadUs).toBeGreaterThanOrEqual(result.medianReadUs);
  });

  test('reads a small file again and again, but never twice through the page cache', async () => {
    const options = { path, blockBytes: 65536, depth: 1, totalBytes: 2 ** 22 };
    expect((await measureDisk({ ...options, direct: true })).bytes).toBe(2 ** 22);
    expect((await measureDisk({ ...options, direct: false })).bytes).toBe(2 ** 20);
  });

  test.each([100, 5000, 2 ** 21])('blocks of %d bytes are refused', async blockBytes => {
    const measure = measureDisk({ path, blockBytes, depth: 1, seconds: 1, direct: true });
    await expect(measure).rejects.toMatchObject({ code: 'FILE_TOO_SMALL' });
  });
});
