import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { StorageError } from '../common/errors.ts';
import type { StoredRecord } from '../quant/stored.ts';
import type { MirrorOptions } from './drives.ts';
import { probeDrives } from './mirror-probe.ts';
import type { ReadPool, ReadPoolOptions } from './read-pool.ts';
import { PAGE, type RecordTable } from './record-table.ts';
import { directRecord, expectLoaded, failureOf, load, packedRecord, TestFiles } from './test-support.ts';

const open: TestFiles[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map(files => files.remove()));
});

const BYTES = 3 * PAGE;
const RECORDS = 12;

/** Two files of six records each, and `mirrors` whole copies of them in directories of their own. */
function setUp(mirrors: number) {
  const files = new TestFiles();
  open.push(files);
  const size = PAGE + (RECORDS / 2) * BYTES;
  files.add(size);
  files.add(size);
  const sha256 = (file: number, offset: number) =>
    createHash('sha256')
      .update(files.slice({ file, offset, bytes: BYTES }))
      .digest('hex');
  const records: StoredRecord[] = Array.from({ length: RECORDS }, (_, i) => {
    const [file, offset] = [i % 2, PAGE + Math.floor(i / 2) * BYTES];
    return directRecord(`record ${i}`, [{ file, offset, bytes: BYTES }], sha256(file, offset));
  });
  const directories = Array.from({ length: mirrors }, (_, i) => join(files.directory, `mirror ${i + 1}`));
  for (const directory of directories) {
    fs.mkdirSync(directory);
    for (const { path } of files.files) fs.copyFileSync(path, join(directory, path.split('/').at(-1)!));
  }
  return { files, records, directories, headerBytes: [PAGE, PAGE] };
}

type SetUp = ReturnType<typeof setUp>;

async function openPool(
  { files, records, directories, headerBytes }: SetUp,
  more: Partial<ReadPoolOptions> = {},
  receipt: Pick<MirrorOptions, 'staged'> = {},
) {
  const losses: string[] = [];
  const onLoss = (line: string) => losses.push(line);
  return {
    losses,
    ...(await files.open(records, { mirrors: { directories, headerBytes, onLoss, ...receipt }, ...more })),
  };
}

function loadAll({ files, records }: SetUp, pool: ReadPool, table: RecordTable, arena: Uint8Array): void {
  records.forEach((record, index) => {
    load(pool, index, index * 4 * PAGE);
    expectLoaded(files, table, record, index, arena, index * 4 * PAGE);
  });
}

describe('routing', () => {
  test('every record is right, and comes from the drive that is told', async () => {
    const set = setUp(4);
    const { pool, table, arenas } = await openPool(set);
    pool.drives.route([1, 1, 1, 1, 1]);
    loadAll(set, pool, table, arenas[0]);
    const { bytes, reads } = pool.drives;
    expect([...reads].reduce((a, b) => a + b)).toBe(RECORDS);
    expect([...bytes]).toEqual([...reads].map(count => count * BYTES));
    const shares = pool.drives.shares(set.records.keys());
    expect(shares).toEqual([...reads].map(count => count / RECORDS));
    expect(reads.filter(count => count > 0).length).toBeGreaterThan(2);
  });

  test('before the drives are weighed, all comes from the model', async () => {
    const set = setUp(1);
    const { pool, table, arenas } = await openPool(set);
    loadAll(set, pool, table, arenas[0]);
    expect([...pool.drives.reads]).toEqual([RECORDS, 0, 0, 0, 0]);
  });

  test('a partial mirror has the records of its files, and those alone', async () => {
    const set = setUp(1);
    fs.rmSync(join(set.directories[0], '1.bin'));
    const { pool, table, arenas, losses } = await openPool(set);
    pool.drives.route([0, 1]);
    loadAll(set, pool, table, arenas[0]);
    expect([...pool.drives.reads].slice(0, 2)).toEqual([RECORDS / 2, RECORDS / 2]);
    expect(losses).toEqual([]);
  });

  test('a record in two files needs both on the mirror', async () => {
    const set = setUp(2);
    fs.rmSync(join(set.directories[0], '1.bin'));
    const both = [0, 1].map(file => ({ file, offset: PAGE, bytes: 100 }));
    const records = [directRecord('direct', both), packedRecord('packed', both)];
    const { pool, table, arenas } = await openPool({ ...set, records });
    pool.drives.route([0, 1, 0]);
    expect(pool.drives.shares([0, 1])).toEqual([1, 0, 0]);
    pool.drives.route([0, 1, 1]);
    expect(pool.drives.shares([0, 1])).toEqual([0, 0, 1]);
    for (const index of [0, 1]) {
      load(pool, index);
      expectLoaded(set.files, table, records[index], index, arenas[0], 0);
    }
  });

  test('drives are measured with the records that each has', async () => {
    const set = setUp(2);
    fs.rmSync(join(set.directories[0], '1.bin'));
    for (const name of ['0.bin', '1.bin']) fs.rmSync(join(set.directories[1], name));
    const { pool } = await openPool(set, { readers: 2 });
    const places = [0, 1, 2].map(i => ({ arena: 0, offset: i * 4 * PAGE }));
    const records = [...set.records.keys()];
    const speeds = probeDrives(pool, { records, places, now: () => 0 });
    expect(speeds).toEqual([RECORDS * BYTES * 1e6, (RECORDS / 2) * BYTES * 1e6, 0]);
    expect(pool.drives.shares(records)).toEqual([1, 0, 0]);
    expect([...pool.drives.reads].slice(0, 3)).toEqual([RECORDS, RECORDS / 2, 0]);
    // a clock that goes on by 100 ms whenever it is looked at: no more is read than the time allows
    let clock = 0;
    probeDrives(pool, { records, places, now: () => (clock += 100) });
    expect(pool.drives.reads[0]).toBe(RECORDS + 1);
  });
});

describe('what is not a copy is not used', () => {
  const only = (set: SetUp, name: string) => join(set.directories[0], name);
  const change = (path: string, at: number) => {
    const bytes = fs.readFileSync(path);
    bytes[at] ^= 1;
    fs.writeFileSync(path, bytes);
  };
  const spoilers: [string, (set: SetUp) => void, RegExp][] = [
    ['first byte of the header', set => change(only(set, '1.bin'), 0), /1\.bin: its header differs .* at byte 0$/],
    ['last byte of the header', set => change(only(set, '1.bin'), PAGE - 1), /at byte 4095$/],
    ['a byte of a record', set => change(only(set, '1.bin'), PAGE + 3 * BYTES + 7), /1\.bin: its weights differ/],
    ['last byte', set => change(only(set, '1.bin'), PAGE + 6 * BYTES - 1), /1\.bin: its weights differ/],
    ['one byte too many', set => fs.appendFileSync(only(set, '1.bin'), 'x'), /it has \d+ bytes .*the model's file/],
    ['cut by a byte', set => fs.truncateSync(only(set, '1.bin'), PAGE + 6 * BYTES - 1), /it has \d+ bytes/],
    ['empty', set => fs.truncateSync(only(set, '1.bin'), 0), /it has 0 bytes/],
    [
      'a directory',
      set => {
        fs.rmSync(only(set, '1.bin'));
        fs.mkdirSync(only(set, '1.bin'));
      },
      /1\.bin: not a regular file$/,
    ],
    [
      'a link to itself',
      set => {
        fs.rmSync(only(set, '1.bin'));
        fs.symlinkSync('1.bin', only(set, '1.bin'));
      },
      /ELOOP/,
    ],
  ];
  test.each(spoilers)('%s', async (_, spoil, message) => {
    const set = setUp(1);
    spoil(set);
    const { pool, table, arenas } = await openPool(set);
    const [mirror] = pool.drives.mirrors;
    expect(mirror).toMatchObject({ files: 1 });
    expect(mirror.notes.filter(note => message.test(note))).toHaveLength(1);
    expect(mirror.fixes).toEqual([expect.stringMatching(/copy again/)]);
    pool.drives.route([0, 1]);
    loadAll(set, pool, table, arenas[0]);
    expect([...pool.drives.reads].slice(0, 2)).toEqual([RECORDS / 2, RECORDS / 2]);
  });

  test('a link to a whole copy is one', async () => {
    const set = setUp(2);
    fs.rmSync(only(set, '0.bin'));
    fs.symlinkSync(join(set.directories[1], '0.bin'), only(set, '0.bin'));
    const { pool } = await openPool(set);
    expect(pool.drives.mirrors[0].files).toBe(2);
  });

  test('a file that may not be read leaves the others', async () => {
    const set = setUp(1);
    const denied = only(set, '0.bin');
    const openFile = (path: string, flags: number) => {
      if (path === denied)
        throw Object.assign(new Error(`EACCES: permission denied, open '${path}'`), { code: 'EACCES' });
      return fs.openSync(path, flags);
    };
    const { pool } = await openPool(set, { hooks: { openFile } });
    expect(pool.drives.mirrors[0].files).toBe(1);
    expect(pool.drives.mirrors[0].notes[0]).toMatch(/0\.bin.*EACCES/);
  });

  test('a mirror for which there are no descriptors gives back those that it had', async () => {
    const set = setUp(1);
    let used = 0;
    const openFile = (path: string, flags: number) => {
      if (path === only(set, '1.bin') && ++used === 1) throw Object.assign(new Error('EMFILE'), { code: 'EMFILE' });
      return fs.openSync(path, flags);
    };
    const before = fs.readdirSync('/proc/self/fd').length;
    const { pool } = await openPool(set, { hooks: { openFile } });
    expect(pool.drives.mirrors[0]).toMatchObject({ files: 0, descriptors: [-1, -1] });
    expect(pool.drives.mirrors[0].notes).toEqual([expect.stringMatching(/too many open files/)]);
    await pool.close();
    expect(fs.readdirSync('/proc/self/fd').length).toBe(before);
  });

  test('no directory, a file, the model itself, and one given twice', async () => {
    const set = setUp(1);
    const [mirror] = set.directories;
    const file = join(mirror, '0.bin');
    const directories = [join(mirror, 'none'), file, set.files.directory, mirror];
    const { pool } = await openPool({ ...set, directories });
    expect(pool.drives.mirrors.map(each => each.files)).toEqual([0, 0, 0, 2]);
    const notes = pool.drives.mirrors.map(each => each.notes[0]);
    expect(notes[0]).toMatch(/no such directory/);
    expect(notes[1]).toMatch(/not a directory/);
    expect(notes[2]).toMatch(/the model itself/);
    expect(notes[3]).toMatch(/on the same device/);
    const fixes = pool.drives.mirrors.map(each => each.fixes);
    expect(fixes).toEqual(
      [[/path/], [/path/], [/of its own/], []].map(each => each.map(fix => expect.stringMatching(fix))),
    );
    const twice = await openPool({ ...set, directories: [mirror, `${mirror}/.`] });
    expect(twice.pool.drives.mirrors.map(each => each.files)).toEqual([2, 0]);
  });
});

describe('a mirror that fails', () => {
  test.each(['eio', 'short'] as const)('%s: the model gives the record, one warning, no request fails', async kind => {
    for (const nth of [1, 2, 7, RECORDS]) {
      const set = setUp(1);
      const { pool, table, arenas, losses } = await openPool(set, { faults: { nth, kind } });
      pool.drives.route([0, 1]);
      loadAll(set, pool, table, arenas[0]);
      expect(losses).toHaveLength(1);
      expect(losses[0]).toMatch(/^WARNING: a mirror fails.*mirror 1\/[01]\.bin at byte \d+/);
      // the failed read and everything later in that file; the other file goes on
      const own = pool.drives.reads[0];
      expect(own).toBe(Math.ceil((RECORDS - nth + 1) / 2));
      await pool.close();
    }
  });

  test('cut while it is used', async () => {
    const set = setUp(1);
    const { pool, table, arenas, losses } = await openPool(set);
    pool.drives.route([0, 1]);
    load(pool, 0);
    for (const name of ['0.bin', '1.bin']) fs.truncateSync(join(set.directories[0], name), PAGE);
    loadAll(set, pool, table, arenas[0]);
    expect(losses).toEqual([expect.stringMatching(/the file ended after 0 of/)]);
    // its lost files stay lost, whatever is asked for later
    pool.drives.route([0, 1]);
    expect(pool.drives.shares(set.records.keys())).toEqual([1, 0]);
  });

  test('removed and replaced while it is used: the open file is still the copy', async () => {
    const set = setUp(1);
    const { pool, table, arenas, losses } = await openPool(set);
    pool.drives.route([0, 1]);
    for (const name of ['0.bin', '1.bin']) {
      fs.rmSync(join(set.directories[0], name));
      fs.writeFileSync(join(set.directories[0], name), 'something else');
    }
    loadAll(set, pool, table, arenas[0]);
    expect(losses).toEqual([]);
    expect(pool.drives.reads[1]).toBe(RECORDS);
  });

  test('every mirror is told once', async () => {
    const set = setUp(4);
    const { pool, table, arenas, losses } = await openPool(set);
    pool.drives.route([0, 1, 1, 1, 1]);
    for (const directory of set.directories) {
      for (const name of ['0.bin', '1.bin']) fs.truncateSync(join(directory, name), PAGE);
    }
    const used = pool.drives.shares(set.records.keys()).filter((share, drive) => drive > 0 && share > 0).length;
    loadAll(set, pool, table, arenas[0]);
    expect(losses).toHaveLength(used);
    expect(pool.drives.reads[0]).toBe(RECORDS);
  });

  test('when the model fails, too, that is what is reported', async () => {
    const set = setUp(1);
    const { pool } = await openPool(set);
    pool.drives.route([0, 1]);
    fs.truncateSync(join(set.directories[0], '0.bin'), PAGE);
    fs.truncateSync(set.files.files[0].path, PAGE + 10);
    const error = failureOf(pool, pool.submit(0, 0, 0, 'demand'));
    expect(error).toMatchObject({ code: 'SHORT_READ', details: { file: set.files.files[0].path, got: 10 } });
  });
});

describe('damage', () => {
  // in place, behind the back of an open pool
  const damage = ({ directories }: SetUp) => {
    const fd = fs.openSync(join(directories[0], '0.bin'), 'r+');
    fs.writeSync(fd, Buffer.from([1, 2, 3]), 0, 3, PAGE + 2 * BYTES + 5);
    fs.closeSync(fd);
  };
  const staged = (directory: string) =>
    new Map(
      ['0.bin', '1.bin'].map(name => {
        const { size: bytes, mtimeMs } = fs.statSync(join(directory, name));
        return [name, { bytes, mtimeMs }];
      }),
    );

  test('with --verify a record that differs comes from the model', async () => {
    const set = setUp(1);
    const { pool, table, arenas, losses } = await openPool(set, { verify: true }, { staged });
    damage(set);
    pool.drives.route([0, 1]);
    loadAll(set, pool, table, arenas[0]);
    expect(losses).toEqual([expect.stringMatching(/record 4.*SHA-256/)]);
  });

  test('what was right from the model is checked again from a mirror', async () => {
    const set = setUp(1);
    const { pool, table, arenas, losses } = await openPool(set, { verify: true }, { staged });
    damage(set);
    loadAll(set, pool, table, arenas[0]);
    pool.drives.route([0, 1]);
    loadAll(set, pool, table, arenas[0]);
    expect(losses).toHaveLength(1);
  });

  test('without a receipt records with a hash are checked once, from every mirror', async () => {
    const set = setUp(2);
    const { pool, table, arenas, losses } = await openPool(set);
    damage(set);
    pool.drives.route([0, 0, 1]);
    loadAll(set, pool, table, arenas[0]);
    expect(losses).toEqual([]);
    pool.drives.route([0, 1, 0]);
    loadAll(set, pool, table, arenas[0]);
    expect(losses).toEqual([expect.stringMatching(/record 4.*SHA-256/)]);
  });

  test('without a receipt what was right once is not checked again', async () => {
    const set = setUp(1);
    const { pool, losses } = await openPool(set);
    pool.drives.route([0, 1]);
    load(pool, 4);
    damage(set);
    load(pool, 4);
    expect(losses).toEqual([]);
  });

  test('with a receipt and without --verify nothing looks at the bytes of a record', async () => {
    const set = setUp(1);
    const { pool, losses } = await openPool(set, {}, { staged });
    damage(set);
    pool.drives.route([0, 1]);
    load(pool, 4);
    expect(losses).toEqual([]);
  });

  test('files that are not as the receipt says are not used, and told in one note', async () => {
    for (const change of [{ mtimeMs: 5 }, { bytes: 5 }]) {
      const set = setUp(1);
      const other = (directory: string) => {
        const right = staged(directory);
        return new Map([...right].map(([name, entry]) => [name, { ...entry, ...change }]));
      };
      const { pool } = await openPool(set, {}, { staged: other });
      const [{ files, notes, fixes }] = pool.drives.mirrors;
      expect(files).toBe(0);
      expect(notes).toEqual([expect.stringMatching(/not used: "0\.bin", "1\.bin"; see coli mirror verify/)]);
      expect(fixes).toEqual([expect.stringMatching(/coli mirror stage/)]);
      await pool.close();
    }
  });

  test('a receipt that cannot be read is told, and the files are what they seem', async () => {
    const set = setUp(1);
    const broken = () => {
      throw new StorageError('MIRROR_RECEIPT_BAD', 'no JSON', { hint: 'remove it' });
    };
    const { pool, losses } = await openPool(set, {}, { staged: broken });
    const [{ files, notes, fixes }] = pool.drives.mirrors;
    expect({ files, fixes }).toEqual({ files: 2, fixes: ['remove it'] });
    expect(notes[0]).toMatch(/its receipt is not used: no JSON/);
    damage(set);
    pool.drives.route([0, 1]);
    load(pool, 4);
    expect(losses).toHaveLength(1);
  });
});
