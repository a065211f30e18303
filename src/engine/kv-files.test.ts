import fs from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { temporaryDirectory } from '../../test/hostile/fixtures.ts';
import {
  BLOCK_BYTES,
  FILE_BYTES,
  idsOf,
  inChild,
  payloadOf,
  restoreAll,
  Scene,
  saveAll,
} from '../../test/support/kv-files.ts';
import { KV_BLOCK } from '../kernels/kernels.ts';
import { kvFilesMemoryBytes } from './kv-files.ts';

const newScene = () => new Scene(join(temporaryDirectory(), 'kv'));

afterEach(() => void vi.restoreAllMocks());

describe('saving and restoring', () => {
  test('a conversation comes back bit for bit, also in another process after a restart', async () => {
    const scene = newScene();
    const files = scene.open();
    const ids = [...idsOf(1, 2, 3), 7, 8];
    expect(files.find(ids)).toBe(0);
    expect(saveAll(files, ids)).toBe(3 * FILE_BYTES);
    expect(files.find(ids)).toBe(3 * KV_BLOCK);
    expect(restoreAll(files, ids)).toBe(3 * KV_BLOCK);
    files.close();
    const reopened = scene.open();
    expect(restoreAll(reopened, Int32Array.from(ids))).toBe(3 * KV_BLOCK);
    expect(reopened.bytes).toBe(3 * FILE_BYTES);
    reopened.close();
    const { value } = await inChild(scene.directory, 'return restoreAll(scene.open(), [...idsOf(1, 2, 3, 4)])');
    expect(value).toBe(3 * KV_BLOCK);
    expect(scene.notes).toEqual([]);
  });

  test('common beginnings are stored once', () => {
    const scene = newScene();
    const files = scene.open();
    saveAll(files, idsOf(1, 2, 3));
    expect(saveAll(files, idsOf(1, 2, 4, 5))).toBe(2 * FILE_BYTES);
    expect(saveAll(files, idsOf(1, 2, 4))).toBe(0);
    expect(scene.files.length).toBe(5);
    expect(files.find(idsOf(1, 2, 5))).toBe(2 * KV_BLOCK);
    expect(files.find(idsOf(2, 2))).toBe(0);
    expect(restoreAll(files, idsOf(1, 2, 4, 6))).toBe(3 * KV_BLOCK);
  });

  test('saving goes on from where it stopped, and fills a gap', () => {
    const scene = newScene();
    const files = scene.open();
    const ids = idsOf(1, 2, 3, 4);
    expect([saveAll(files, ids, 1), files.find(ids)]).toEqual([FILE_BYTES, KV_BLOCK]);
    expect([saveAll(files, ids, 2), files.find(ids)]).toEqual([2 * FILE_BYTES, 3 * KV_BLOCK]);
    expect([saveAll(files, ids, 2), files.find(ids)]).toEqual([FILE_BYTES, 4 * KV_BLOCK]);
    fs.rmSync(scene.files[1]);
    expect([files.find(ids), restoreAll(files, ids)]).toEqual([KV_BLOCK, KV_BLOCK]);
    expect([saveAll(files, ids), restoreAll(files, ids)]).toEqual([FILE_BYTES, 4 * KV_BLOCK]);
    expect(scene.notes).toEqual([]);
  });

  test('a range is restored as asked', () => {
    const files = newScene().open();
    const ids = idsOf(1, 2, 3, 4);
    saveAll(files, ids);
    const stored: number[] = [];
    const store = (block: number) => void stored.push(block);
    expect(files.restore(ids, 1, 3, store)).toBe(2);
    expect(files.restore(ids, 3, 9, store)).toBe(1);
    expect(files.restore(ids, 2, 2, store)).toBe(0);
    expect(files.restore(ids, 4, 9, store)).toBe(0);
    expect(stored).toEqual([1, 2, 3]);
  });

  test('models and settings do not see each other, and have their own budgets', () => {
    const scene = newScene();
    const a = scene.open({ maxBytes: 2 * FILE_BYTES });
    const b = scene.open({ identity: Buffer.from('other'), maxBytes: 2 * FILE_BYTES });
    saveAll(a, idsOf(1, 2));
    expect(b.find(idsOf(1, 2))).toBe(0);
    saveAll(b, idsOf(1, 2));
    expect([a.bytes, b.bytes]).toEqual([2 * FILE_BYTES, 2 * FILE_BYTES]);
    expect([restoreAll(a, idsOf(1, 2)), restoreAll(b, idsOf(1, 2))]).toEqual([128, 128]);
    expect(fs.readdirSync(scene.directory).length).toBe(2);
  });

  test('an error of the engine while a block is read leaves nothing half-done', () => {
    const scene = newScene();
    const files = scene.open();
    const fail = () => {
      throw new Error('no block');
    };
    expect(() => files.save(idsOf(1), fail)).toThrow('no block');
    expect(scene.files).toEqual([]);
    saveAll(files, idsOf(1));
    expect(() => files.restore(idsOf(1), 0, 1, fail)).toThrow('no block');
    expect(restoreAll(files, idsOf(1))).toBe(KV_BLOCK);
  });

  test('blocks of several megabytes', () => {
    const files = newScene().open({ blockBytes: 3_000_001 });
    const ids = idsOf(1, 2);
    files.save(ids, (block, into) => into.set(payloadOf(ids, block, into.length)));
    expect(restoreAll(files, ids)).toBe(2 * KV_BLOCK);
  });

  test('what the memory plan is told', () => {
    expect(kvFilesMemoryBytes({ blockBytes: BLOCK_BYTES, maxBytes: 10 * FILE_BYTES })).toBe(FILE_BYTES + 2000);
    expect(kvFilesMemoryBytes({ blockBytes: BLOCK_BYTES, maxBytes: 1e15 })).toBe(FILE_BYTES + 20_000_000);
  });
});

describe('files that are not what was saved', () => {
  const damage: [string, (path: string, other: string) => void, string][] = [
    ['flipped', path => flip(path, 300), 'its hash differs'],
    ['truncated', path => fs.truncateSync(path, 200), 'has 200 bytes'],
    ['empty', path => fs.truncateSync(path, 0), 'has 0 bytes'],
    ['longer', path => fs.appendFileSync(path, 'x'), `has ${FILE_BYTES + 1} bytes`],
    ['swapped', (path, other) => fs.copyFileSync(other, path), 'holds another block'],
    ['linked', replaceByLink, 'no regular file'],
    ['writable by others', path => fs.chmodSync(path, 0o666), 'can be written by other users'],
  ];

  test.each(damage)('%s: ignored with one line, and written again', (_, spoil, line) => {
    const scene = newScene();
    const files = scene.open();
    const ids = idsOf(1, 2, 3, 4);
    saveAll(files, ids);
    const [, second, third] = scene.files;
    spoil(second, third);
    expect(restoreAll(files, ids)).toBe(KV_BLOCK);
    expect(restoreAll(files, ids)).toBe(KV_BLOCK);
    expect(scene.notes).toEqual([expect.stringContaining(line)]);
    expect(fs.existsSync(second)).toBe(false);
    expect(saveAll(files, ids)).toBe(FILE_BYTES);
    expect(restoreAll(files, ids)).toBe(4 * KV_BLOCK);
    expect(files.bytes).toBe(4 * FILE_BYTES);
  });

  test('a reader says it once too, and removes nothing', () => {
    const scene = newScene();
    const writer = scene.open();
    const ids = idsOf(1, 2, 3);
    saveAll(writer, ids);
    const reader = scene.open();
    const [first, second] = scene.files;
    flip(first, 10);
    flip(second, 10);
    for (let turn = 0; turn < 3; turn++) expect(restoreAll(reader, ids)).toBe(0);
    expect(scene.notes.filter(note => note.includes('ignored'))).toHaveLength(1);
    expect(scene.files.length).toBe(3);
  });

  test('a truncated file is written again when it was never read', () => {
    const scene = newScene();
    const files = scene.open();
    saveAll(files, idsOf(1, 2));
    fs.truncateSync(scene.files[1], 7);
    saveAll(files, idsOf(1, 2));
    expect(restoreAll(files, idsOf(1, 2))).toBe(2 * KV_BLOCK);
    expect(files.bytes).toBe(2 * FILE_BYTES);
  });
});

function replaceByLink(path: string, target: string): void {
  fs.rmSync(path);
  fs.symlinkSync(target, path);
}

function flip(path: string, at: number): void {
  const bytes = fs.readFileSync(path);
  bytes[at] ^= 4;
  fs.writeFileSync(path, bytes);
}

describe('the budget', () => {
  test('is never exceeded, not even while a file is written', () => {
    const scene = newScene();
    const files = scene.open({ maxBytes: 4 * FILE_BYTES + 5 });
    let most = 0;
    const { renameSync } = fs;
    vi.spyOn(fs, 'renameSync').mockImplementation((from, to) => {
      const sizes = fs.readdirSync(scene.path).filter(name => name.includes('.kv') && !name.startsWith('coli'));
      most = Math.max(most, sizes.length);
      renameSync(from, to);
    });
    for (let i = 0; i < 10; i++) saveAll(files, idsOf(1, 2 + i, 20 + i));
    expect(most).toBe(4);
    expect(scene.files.length).toBe(4);
    expect(files.bytes).toBe(4 * FILE_BYTES);
  });

  test('the end of the conversation that was not used for longest goes first', () => {
    const files = newScene().open({ maxBytes: 6 * FILE_BYTES });
    const [a, b] = [idsOf(1, 2, 3), idsOf(1, 4, 5)];
    saveAll(files, a);
    saveAll(files, b);
    restoreAll(files, a);
    saveAll(files, idsOf(6, 7));
    expect([files.find(a), files.find(b)]).toEqual([3 * KV_BLOCK, 2 * KV_BLOCK]);
    saveAll(files, idsOf(8, 9));
    expect([files.find(a), files.find(b), files.find(idsOf(6, 7))]).toEqual([2 * KV_BLOCK, KV_BLOCK, 2 * KV_BLOCK]);
  });

  test('of a conversation that is larger, the beginning is kept', () => {
    const scene = newScene();
    const files = scene.open({ maxBytes: 3 * FILE_BYTES });
    saveAll(files, idsOf(9));
    const ids = idsOf(1, 2, 3, 4, 5);
    expect(saveAll(files, ids)).toBe(3 * FILE_BYTES);
    expect(saveAll(files, ids)).toBe(0);
    expect(restoreAll(files, ids)).toBe(3 * KV_BLOCK);
    expect(files.saves).toBe(true);
    expect(scene.notes).toEqual([expect.stringContaining('larger than the limit')]);
    expect(saveAll(files, idsOf(9))).toBe(FILE_BYTES);
  });

  test('that holds no block is told, and nothing is saved', () => {
    const scene = newScene();
    const files = scene.open({ maxBytes: FILE_BYTES - 1 });
    expect([files.saves, saveAll(files, idsOf(1))]).toEqual([false, 0]);
    expect(scene.notes).toEqual([expect.stringContaining('more than the limit')]);
  });
});

test('random conversations with common beginnings behave as a simple list in memory says', () => {
  const step = fc.record({
    blocks: fc.array(fc.integer({ min: 1, max: 3 }), { minLength: 1, maxLength: 5 }),
    extra: fc.integer({ min: 0, max: KV_BLOCK - 1 }),
    action: fc.constantFrom('save', 'saveSome', 'restore', 'find', 'reopen'),
    some: fc.integer({ min: 1, max: 3 }),
  });
  const parent = temporaryDirectory();
  const property = fc.property(fc.array(step, { maxLength: 30 }), fc.integer({ min: 3, max: 12 }), (steps, room) => {
    const directory = fs.mkdtempSync(join(parent, 'kv-'));
    const scene = new Scene(directory);
    let files = scene.open({ maxBytes: room * FILE_BYTES });
    // names of blocks in order of use, the next to go first
    let model: string[] = [];
    const use = (names: string[]) => {
      model = [...model.filter(name => !names.includes(name)), ...names.toReversed()];
    };
    const leading = (names: string[]) => {
      const missing = names.findIndex(name => !model.includes(name));
      return missing < 0 ? names : names.slice(0, missing);
    };
    for (const { blocks, extra, action, some } of steps) {
      const ids = [...idsOf(...blocks), ...idsOf(50).slice(0, extra)];
      const names = blocks.map((_, i) => blocks.slice(0, i + 1).join());
      if (action === 'reopen') {
        files.close();
        files = scene.open({ maxBytes: room * FILE_BYTES });
      } else if (action === 'restore') {
        expect(restoreAll(files, ids)).toBe(leading(names).length * KV_BLOCK);
        use(leading(names));
      } else if (action !== 'find') {
        let written = 0;
        const most = action === 'save' ? 99 : some;
        for (;;) {
          const chain = leading(names);
          use(chain);
          if (chain.length === names.length || written === most) break;
          if (model.length === room) {
            if (chain.includes(model[0])) break;
            model.shift();
          }
          model.push(names[chain.length]);
          written++;
        }
        expect(saveAll(files, ids, most)).toBe(written * FILE_BYTES);
      }
      expect(files.find(ids)).toBe(leading(names).length * KV_BLOCK);
      expect(scene.files.length).toBe(model.length);
      expect(files.bytes).toBe(model.length * FILE_BYTES);
      // no orphans
      for (const name of model) if (name.includes(',')) expect(model).toContain(name.slice(0, name.lastIndexOf(',')));
    }
    expect(scene.notes.filter(note => !note.includes('larger than the limit'))).toEqual([]);
    files.close();
  });
  fc.assert(property, { numRuns: 60, seed: 20_260_801 });
});
