import fs from 'node:fs';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { blockName } from './kv-block-file.ts';
import { KV_LOCK_FILE, KvDirectory, type KvDirectoryOptions } from './kv-directory.ts';

const HOUR_MS = 3_600_000;

function scene(path = join(temporaryDirectory(), 'kv')) {
  const notes: string[] = [];
  const open = (more: Partial<KvDirectoryOptions> = {}) =>
    new KvDirectory({ path, fileBytes: 10, maxBytes: 100, note: line => notes.push(line), ...more });
  const put = (name: string, timeMs = Date.now(), bytes = 10) => {
    fs.writeFileSync(join(path, name), Buffer.alloc(bytes), { mode: 0o600 });
    fs.utimesSync(join(path, name), timeMs / 1000, timeMs / 1000);
    return name;
  };
  const list = () =>
    fs
      .readdirSync(path)
      .filter(name => name !== KV_LOCK_FILE)
      .sort();
  return { path, notes, open, put, list };
}

const name = (block: number, letter: string) => blockName(block, letter.repeat(64));

test('directories are private', () => {
  const { path, open } = scene(join(temporaryDirectory(), 'a', 'b'));
  open().close();
  for (const made of [path, join(path, '..')]) expect(fs.statSync(made).mode & 0o777).toBe(0o700);
});

test.each([
  ['a link', (path: string) => fs.symlinkSync(temporaryDirectory(), path), 'no directory'],
  ['a file', (path: string) => fs.writeFileSync(path, ''), 'it is no directory'],
  ['open to a group', (path: string) => makeDirectory(path, 0o770), 'other users can write'],
  ['open to all', (path: string) => makeDirectory(path, 0o777), 'other users can write'],
])('what is %s is not used at all', (_, make, why) => {
  const { path, notes, open } = scene();
  make(path);
  const directory = open();
  expect([directory.readable, directory.writable]).toEqual([false, false]);
  expect(notes).toEqual([expect.stringContaining(why)]);
});

test('what belongs to another user is not used at all', () => {
  const { path, notes, open } = scene();
  open().close();
  const other = 12_345;
  if (process.getuid!() === 0) fs.chownSync(path, other, -1);
  else vi.spyOn(process, 'geteuid').mockReturnValue(other);
  expect(open().readable).toBe(false);
  vi.restoreAllMocks();
  expect(notes).toEqual([expect.stringContaining('belongs to another user')]);
});

function makeDirectory(path: string, mode: number): void {
  fs.mkdirSync(path);
  fs.chmodSync(path, mode);
}

test('the scan keeps blocks, removes leftovers and wrong sizes, and leaves all other names alone', () => {
  const { path, notes, open, put, list } = scene();
  open().close();
  put(name(0, 'a'));
  put(name(1, 'b'), Date.now(), 9);
  put(`${name(2, 'c')}.partial`);
  const others = [
    put('notes.txt'),
    put('x.partial'),
    put(`${name(3, 'd')}x`),
    put(name(4, 'e').slice(1)),
    put(name(5, 'A')),
  ];
  fs.writeFileSync(join(path, '..', 'outside'), 'kept');
  fs.symlinkSync('../outside', join(path, name(6, 'f')));
  fs.symlinkSync('../outside', join(path, `${name(6, 'f')}.partial`));
  fs.mkdirSync(join(path, name(7, 'a')));
  others.push(name(6, 'f'), `${name(6, 'f')}.partial`, name(7, 'a'));
  const directory = open();
  expect(directory.bytes).toBe(10);
  expect(list()).toEqual([name(0, 'a'), ...others].sort());
  expect(fs.readFileSync(join(path, '..', 'outside'), 'utf8')).toBe('kept');
  expect(notes).toEqual([expect.stringContaining('1 of a wrong size removed')]);
});

test('a directory with too many entries is read and no longer written', () => {
  const { notes, open, put } = scene();
  open().close();
  for (let i = 0; i < 5; i++) put(`other-${i}`);
  expect(open({ maxEntries: 5 }).writable).toBe(false);
  expect(notes).toEqual([expect.stringContaining('more than 5 entries')]);
});

test('a smaller budget is kept from the start: the longest unused goes, deepest first', () => {
  const { open, put, list } = scene();
  open().close();
  const now = Date.now();
  const [old0, old1, old2] = [put(name(0, 'a'), now - 3 * HOUR_MS), name(1, 'b'), name(2, 'c')];
  for (const deeper of [old2, old1]) put(deeper, now - 3 * HOUR_MS);
  const young = put(name(3, 'd'), now - HOUR_MS);
  open({ maxBytes: 39 }).close();
  expect(list()).toEqual([old0, old1, young]);
  open({ maxBytes: 20 }).close();
  expect(list()).toEqual([old0, young]);
});

test('a use is remembered over a restart, all blocks of a chain at the same time', () => {
  const { path, open, put, list } = scene();
  open().close();
  const now = Date.now();
  const chain = [name(0, 'a'), name(1, 'b')];
  for (const block of chain) put(block, now - 3 * HOUR_MS);
  const other = put(name(0, 'c'), now - HOUR_MS);
  const directory = open();
  directory.use(chain);
  directory.close();
  const times = chain.map(block => fs.statSync(join(path, block)).mtimeMs);
  expect(times[0]).toBe(times[1]);
  expect(times[0]).toBeGreaterThanOrEqual(now - 1);
  open({ maxBytes: 20 }).close();
  expect(list()).toEqual(chain);
  expect(list()).not.toContain(other);
});

test('times are whole milliseconds, whatever the disk keeps', () => {
  const { open, put } = scene();
  open().close();
  const now = Date.now();
  const blocks = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
  for (const back of blocks) put(name(back, 'a'), now - back + 0.4 - back / 10);
  const directory = open();
  expect(blocks.map(back => directory.use([name(back, 'a')]))).toEqual(blocks.map(back => now - back));
});

test('the order of use holds when the clock was put back', () => {
  const { path, open, put } = scene();
  open().close();
  const later = Date.now() + 10 * HOUR_MS;
  put(name(0, 'a'), later);
  put(name(0, 'b'), 0);
  const directory = open();
  directory.use([name(0, 'b')]);
  expect(fs.statSync(join(path, name(0, 'b'))).mtimeMs).toBeGreaterThan(later - 1);
  expect(directory.makeRoom(new Set())).toBe(true);
  directory.close();
  open({ maxBytes: 10 }).close();
  expect(fs.existsSync(join(path, name(0, 'b')))).toBe(true);
});

test('room is made from the end of the longest unused chain, and never by what is to be kept', () => {
  const { open, put, list } = scene();
  open().close();
  const a = [put(name(0, 'a')), put(name(1, 'a')), put(name(2, 'a'))];
  const b = [put(name(0, 'b')), put(name(1, 'b'))];
  const directory = open({ maxBytes: 50 });
  for (const chain of [b, a, b]) directory.use(chain);
  const keep = new Set(b);
  for (const left of [2, 1, 0]) {
    expect(directory.makeRoom(keep)).toBe(true);
    expect(list()).toEqual([...a.slice(0, left), ...keep].sort());
    const added = put(name(2 + keep.size, 'b'));
    directory.added(added, Date.now());
    keep.add(added);
    expect(directory.bytes).toBe(50);
  }
  expect(directory.makeRoom(keep)).toBe(false);
  expect(list()).toEqual([...keep].sort());
});

test('files that somebody removed take no room', () => {
  const { path, open, put } = scene();
  open().close();
  put(name(0, 'a'));
  const directory = open();
  expect([directory.has(name(0, 'a')), directory.bytes]).toEqual([true, 10]);
  fs.rmSync(join(path, name(0, 'a')));
  expect([directory.has(name(0, 'a')), directory.bytes]).toEqual([false, 0]);
  put(name(0, 'a'));
  expect([directory.has(name(0, 'a')), directory.bytes]).toEqual([true, 10]);
});
