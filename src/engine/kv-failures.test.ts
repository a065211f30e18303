import fs from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { temporaryDirectory } from '../../test/hostile/fixtures.ts';
import { FILE_BYTES, idsOf, inChild, restoreAll, Scene, saveAll } from '../../test/support/kv-files.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';

const newScene = () => new Scene(join(temporaryDirectory(), 'kv'));

afterEach(() => void vi.restoreAllMocks());

describe('when the disk refuses', () => {
  const refuse = (call: 'openSync' | 'writeSync' | 'renameSync' | 'futimesSync', code: string) =>
    vi.spyOn(fs, call).mockImplementation(() => {
      throw Object.assign(new Error(code), { code });
    });

  test.each([
    ['openSync', 'EACCES'],
    ['openSync', 'EROFS'],
    ['openSync', 'EMFILE'],
    ['writeSync', 'ENOSPC'],
    ['writeSync', 'EDQUOT'],
    ['writeSync', 'EIO'],
    ['futimesSync', 'EPERM'],
    ['renameSync', 'ENOSPC'],
  ] as const)('%s with %s: one line, nothing is saved any more, what was saved is still read', (call, code) => {
    const scene = newScene();
    const files = scene.open();
    saveAll(files, idsOf(1));
    const spy = refuse(call, code);
    expect(saveAll(files, idsOf(1, 2, 3))).toBe(0);
    spy.mockRestore();
    expect([files.saves, saveAll(files, idsOf(5))]).toEqual([false, 0]);
    expect(restoreAll(files, idsOf(1, 2))).toBe(KV_BLOCK);
    expect(scene.notes).toEqual([expect.stringMatching(`\\(${code}\\); nothing more is saved`)]);
    expect(fs.readdirSync(scene.path).filter(name => name.includes('partial'))).toEqual([]);
  });

  test.each([
    ['a file', (path: string) => fs.writeFileSync(path, '')],
    ['a link to nowhere', (path: string) => fs.symlinkSync(join(path, 'nowhere'), path)],
  ])('%s in the place of the directory: one line, nothing is saved', (_, put) => {
    const path = join(temporaryDirectory(), 'kv');
    put(path);
    const scene = new Scene(join(path, 'deeper'));
    const files = scene.open();
    expect([files.saves, saveAll(files, idsOf(1)), files.find(idsOf(1))]).toEqual([false, 0, 0]);
    expect(scene.notes).toEqual([expect.stringContaining('cannot be used for keys and values')]);
  });

  test.runIf(fs.existsSync('/proc/self'))('a place that takes no directories ends at once', () => {
    const scene = new Scene('/proc/colibri/kv');
    expect(scene.open().saves).toBe(false);
    expect(scene.notes).toEqual([expect.stringContaining('cannot be used for keys and values')]);
  });

  test('a file that cannot be read for want of descriptors is not removed', () => {
    const scene = newScene();
    const files = scene.open();
    saveAll(files, idsOf(1));
    const spy = refuse('openSync', 'EMFILE');
    expect(restoreAll(files, idsOf(1))).toBe(0);
    spy.mockRestore();
    expect(scene.notes).toEqual([expect.stringContaining('cannot be read (EMFILE)')]);
    expect(restoreAll(files, idsOf(1))).toBe(KV_BLOCK);
  });

  test('a directory that vanished: nothing is found, and one line when saving fails', () => {
    const scene = newScene();
    const files = scene.open();
    saveAll(files, idsOf(1, 2));
    fs.rmSync(scene.directory, { recursive: true });
    expect([files.find(idsOf(1, 2)), restoreAll(files, idsOf(1, 2))]).toEqual([0, 0]);
    expect([saveAll(files, idsOf(1, 2)), saveAll(files, idsOf(3))]).toEqual([0, 0]);
    expect(scene.notes).toEqual([expect.stringContaining('writing failed (ENOENT)')]);
    files.close();
  });

  test('a file that cannot be evicted ends the saving', () => {
    const scene = newScene();
    const files = scene.open({ maxBytes: FILE_BYTES });
    saveAll(files, idsOf(1));
    vi.spyOn(fs, 'rmSync').mockImplementation(() => {
      throw Object.assign(new Error(), { code: 'EPERM' });
    });
    expect(saveAll(files, idsOf(2))).toBe(0);
    expect(scene.notes).toEqual([expect.stringContaining('cannot be removed (EPERM)')]);
    expect(scene.files.length).toBe(1);
  });

  test('a limit of the system on the size of files', async () => {
    const scene = newScene();
    // blocks of 512 bytes; the second write comes to an end in its middle
    const body = `
      const files = scene.open({ blockBytes: 4096 });
      const written = saveAll(files, idsOf(1, 2));
      return { written, saves: files.saves, notes: scene.notes, left: fs.readdirSync(scene.path) };`;
    const { value } = await inChild(scene.directory, body, { ulimit: '-f 4' });
    expect(value).toEqual({
      written: 0,
      saves: false,
      notes: [expect.stringContaining('writing failed (EFBIG)')],
      left: ['coli.kv.lock'],
    });
  });

  test('a directory that may only be read', async () => {
    const scene = newScene();
    const writer = scene.open();
    saveAll(writer, idsOf(1, 2));
    writer.close();
    // root may write everywhere: the child is somebody else who owns what was saved
    const nobody = process.getuid!() === 0 ? 65_534 : process.getuid!();
    for (const path of [temporaryOf(scene), scene.directory, scene.path, ...scene.files])
      fs.chownSync(path, nobody, -1);
    fs.chmodSync(scene.path, 0o500);
    const body = `
      const files = scene.open();
      return { restored: restoreAll(files, idsOf(1, 2)), saved: saveAll(files, idsOf(3)), notes: scene.notes };`;
    const { value } = await inChild(scene.directory, body, { uid: nobody });
    fs.chmodSync(scene.path, 0o700);
    expect(value).toEqual({
      restored: 2 * KV_BLOCK,
      saved: 0,
      notes: [expect.stringContaining('it cannot be written (EACCES); they are read, and none are saved')],
    });
  });
});

const temporaryOf = (scene: Scene) => join(scene.directory, '..');

describe('processes', () => {
  test('the second reads only and says so; when the first is gone, the next one writes', async () => {
    const scene = newScene();
    const writer = scene.open();
    saveAll(writer, idsOf(1, 2));
    const body = `
      const files = scene.open();
      return { restored: restoreAll(files, idsOf(1, 2)), saved: saveAll(files, idsOf(3)), notes: scene.notes };`;
    const second = await inChild(scene.directory, body);
    expect(second.value).toEqual({
      restored: 2 * KV_BLOCK,
      saved: 0,
      notes: [expect.stringContaining(`process ${process.pid} writes there; they are read, and none are saved`)],
    });
    writer.close();
    const third = await inChild(scene.directory, body);
    expect(third.value).toEqual({ restored: 2 * KV_BLOCK, saved: FILE_BYTES, notes: [] });
    // it ended without giving the lock back
    expect(scene.open().saves).toBe(true);
    expect(scene.notes).toEqual([]);
  });

  test.each([
    ['before the first byte', 'writeSync', 1, 'before', 0],
    ['in the middle of a block', 'writeSync', 3, 'half', 2],
    ['before a block has its name', 'renameSync', 2, 'before', 1],
    ['after a block has its name', 'renameSync', 2, 'after', 2],
  ] as const)('killed %s: whole blocks and nothing else', async (_, call, nth, when, saved) => {
    const scene = newScene();
    const body = `
      const files = scene.open();
      let calls = 0;
      const real = fs.${call};
      fs.${call} = (...args) => {
        const last = ++calls === ${nth};
        if (last && '${when}' === 'half') real(args[0], args[1], args[2], args[3] >> 1, args[4]);
        if (last && '${when}' === 'after') real(...args);
        if (last) process.kill(process.pid, 'SIGKILL');
        return real(...args);
      };
      saveAll(files, idsOf(1, 2, 3, 4));`;
    expect((await inChild(scene.directory, body)).signal).toBe('SIGKILL');
    expect(scene.files.length).toBe(saved);
    const files = scene.open();
    expect(fs.readdirSync(scene.path).filter(name => name.includes('partial'))).toEqual([]);
    expect(restoreAll(files, idsOf(1, 2, 3, 4))).toBe(saved * KV_BLOCK);
    expect(saveAll(files, idsOf(1, 2, 3, 4))).toBe((4 - saved) * FILE_BYTES);
    expect(restoreAll(files, idsOf(1, 2, 3, 4))).toBe(4 * KV_BLOCK);
    expect(scene.notes).toEqual([]);
  });
});
