import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { fake } from '../../test/support/fake-checkpoint.ts';
import { takeLock } from '../common/process-lock.ts';
import { engineId } from '../experts/usage/c-engine-usage.ts';
import { LOCK } from '../experts/usage/usage-file.ts';
import type { ModelFiles } from './model-files.ts';
import { UsageHistory } from './usage.ts';
import { USAGE_FILE, usagePlaces } from './usage-place.ts';

let root: string;
let model: string;
let notes: string[];
let clockMs: number;
let cacheBefore: string | undefined;

beforeEach(() => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-usage-'));
  model = path.join(root, 'model');
  fs.mkdirSync(model);
  notes = [];
  clockMs = 0;
  cacheBefore = process.env['XDG_CACHE_HOME'];
  process.env['XDG_CACHE_HOME'] = path.join(root, 'cache');
});
afterEach(() => {
  if (cacheBefore === undefined) delete process.env['XDG_CACHE_HOME'];
  else process.env['XDG_CACHE_HOME'] = cacheBefore;
  fs.rmSync(root, { recursive: true, force: true });
});

const CHECKPOINT = fake({ a: ['F32', [4]] }, null, { hidden_size: 4 });

function open(mode = 'on', { directory = model, hiddenSize = 4 } = {}): UsageHistory {
  const checkpoint = { ...CHECKPOINT, directory, config: { hidden_size: hiddenSize } };
  const shape = { layers: 2, experts: 3, topK: 1 };
  const files = { checkpoint, shape, family: { modelType: 'olmoe' } } as unknown as ModelFiles;
  return new UsageHistory(
    files,
    mode,
    line => notes.push(line),
    () => clockMs,
  );
}

/** A token that uses one expert of layer 0. */
function use(history: UsageHistory, expert: number): void {
  history.recent.leaseBegins(0, Int32Array.of(expert), Int32Array.of(1), 1);
}

const counts = (history: UsageHistory) => [...history.total().counts.subarray(0, 3)];
const own = () => path.join(model, USAGE_FILE);
const tree = () => fs.readdirSync(root, { recursive: true, encoding: 'utf8' }).sort();

describe('the history', () => {
  test('lies beside the model and goes on where it ended', () => {
    const first = open();
    use(first, 1);
    first.close();
    expect(tree()).toEqual(['model', `model/${USAGE_FILE}`]);
    const second = open();
    use(second, 1);
    use(second, 2);
    expect(counts(second)).toEqual([0, 2, 1]);
    second.close();
    expect(counts(open())).toEqual([0, 2, 1]);
    expect(notes).toEqual([]);
  });

  test('is saved at safe points, not too often, and not at all when nothing happened', () => {
    const history = open();
    history.safePoint();
    expect(fs.existsSync(own())).toBe(false);
    use(history, 0);
    history.safePoint();
    expect(counts(open())).toEqual([1, 0, 0]);
    use(history, 0);
    clockMs = 4999;
    history.safePoint();
    expect(counts(open())).toEqual([1, 0, 0]);
    clockMs = 5000;
    history.safePoint();
    expect(counts(open())).toEqual([2, 0, 0]);
  });

  test('of two engines has what both saw, whoever saves last', () => {
    const [a, b] = [open(), open()];
    use(a, 0);
    use(b, 1);
    use(b, 1);
    a.close();
    b.close();
    expect(counts(open())).toEqual([1, 2, 0]);
  });

  test('waits for another one that saves, at close for a while', () => {
    const lock = takeLock(own() + LOCK);
    const history = open();
    use(history, 0);
    history.safePoint();
    expect(fs.existsSync(own())).toBe(false);
    lock.release?.();
    history.safePoint();
    expect(counts(open())).toEqual([1, 0, 0]);
  });

  test.each([
    ['is locked by another process', () => void takeLock(own() + LOCK), 49],
    ['has a lock that is no file', () => fs.mkdirSync(own() + LOCK), 0],
  ])('that %s says at close that it is not saved', (why, lock, waits) => {
    const wait = vi.spyOn(Atomics, 'wait').mockReturnValue('timed-out');
    try {
      lock();
      const history = open();
      use(history, 0);
      history.close();
      expect(wait).toHaveBeenCalledTimes(waits);
      expect(fs.existsSync(own())).toBe(false);
      expect(notes).toEqual([expect.stringContaining(`${own()} ${why}`)]);
      expect(notes[0]).toContain('not saved');
    } finally {
      wait.mockRestore();
    }
  });

  test('is only read with read', () => {
    const first = open();
    use(first, 1);
    first.close();
    const before = fs.readFileSync(own());
    const second = open('read');
    use(second, 1);
    expect(counts(second)).toEqual([0, 2, 0]);
    second.close();
    expect(fs.readFileSync(own())).toEqual(before);
  });

  test('lies where the user says', () => {
    const file = path.join(root, 'a history');
    const history = open(file);
    use(history, 2);
    history.close();
    expect(tree()).toEqual(['a history', 'model']);
    expect(counts(open(file))).toEqual([0, 0, 1]);
  });
});

describe('what cannot be used', () => {
  test('of another model is left as it is; the history is kept in the cache', () => {
    const other = open('on', { hiddenSize: 8 });
    use(other, 0);
    other.close();
    const before = fs.readFileSync(own());
    for (const expected of [1, 2]) {
      const history = open();
      use(history, 2);
      history.close();
      expect(counts(open())).toEqual([0, 0, expected]);
    }
    expect(fs.readFileSync(own())).toEqual(before);
    expect(notes[0]).toBe(
      `${own()} is of another model: it is left as it is, and the history of use is kept elsewhere`,
    );
  });

  test('because it is damaged is told and begins anew', () => {
    const first = open();
    use(first, 0);
    first.close();
    fs.writeFileSync(own(), fs.readFileSync(own()).subarray(0, 140));
    const second = open();
    expect(notes).toEqual([`${own()} is incomplete: the history of use begins anew`]);
    use(second, 1);
    second.close();
    expect(counts(open())).toEqual([0, 1, 0]);
  });

  test('with a place that cannot be written is told once', () => {
    const directory = path.join(root, 'a directory');
    fs.mkdirSync(directory);
    const history = open(path.join(directory, 'x'));
    fs.rmdirSync(directory);
    use(history, 0);
    for (let i = 0; i < 3; i++) history.safePoint();
    history.close();
    expect(notes).toHaveLength(1);
    expect(notes[0]).toMatch(/cannot be written \(ENOENT\)/);
    expect(fs.existsSync(directory)).toBe(false);
  });

  test('is refused when the user has named it', () => {
    const text = path.join(root, 'text');
    fs.writeFileSync(text, 'not a history');
    const nowhere = path.join(root, 'no', 'where', 'x');
    for (const [file, message] of [
      [root, 'is no regular file'],
      [text, 'is no history of this model: it has a line that is not three numbers (1)'],
      [nowhere, 'there is no directory'],
      [path.join(text, 'x'), 'there is no directory'],
    ]) {
      const refusal = { code: 'BAD_USAGE', message: expect.stringContaining(message) };
      expect(() => open(file)).toThrow(expect.objectContaining(refusal));
    }
    expect(tree()).toEqual(['model', 'text']);
    expect(notes).toEqual([]);
  });
});

describe("the C engine's history", () => {
  const text = (engine: string) => `-1 2 3\n-2 1 ${engineId(engine)}\n0 1 7\n`;
  const theirs = () => path.join(model, '.coli_usage');

  test('is the beginning where there is no other', () => {
    fs.writeFileSync(theirs(), text('olmoe'));
    const first = open();
    expect(counts(first)).toEqual([0, 7, 0]);
    use(first, 0);
    first.close();
    fs.writeFileSync(theirs(), 'no longer looked at');
    expect(counts(open())).toEqual([1, 7, 0]);
    expect(notes).toEqual([]);
  });

  test('of another kind of model is refused, unless it was named; then it is not counted twice', () => {
    fs.writeFileSync(theirs(), text('mixtral'));
    expect(counts(open())).toEqual([0, 0, 0]);
    for (const _ of [1, 2]) {
      const history = open(theirs());
      expect(counts(history)).toEqual([0, 7, 0]);
      use(history, 0);
      history.close();
    }
    expect(counts(open())).toEqual([2, 7, 0]);
    expect(notes[0]).toMatch(/is of another kind of model: it is not imported/);
    expect(notes[1]).toMatch(/it was named, so it counts/);
    expect(fs.readFileSync(theirs(), 'utf8')).toBe(text('mixtral'));
  });
});

describe('the place', () => {
  const places = (directory: string, packageRoot = '/nowhere') =>
    usagePlaces(directory, 'id', packageRoot).map(place => path.relative(root, place.path));
  const inCache = 'cache/colibri/usage/id.usage';

  test('is beside a directory or a file, then in the cache', () => {
    const gguf = path.join(root, 'm.gguf');
    fs.writeFileSync(gguf, '');
    expect(places(model)).toEqual([`model/${USAGE_FILE}`, inCache]);
    expect(places(gguf)).toEqual([`m.gguf.${USAGE_FILE}`, inCache]);
  });

  test('is not in the cache of the hub, however it is reached, nor in the program itself', () => {
    const snapshot = path.join(root, 'models--a--b', 'snapshots', 'c0ffee');
    fs.mkdirSync(snapshot, { recursive: true });
    fs.symlinkSync(snapshot, path.join(root, 'link'));
    expect(places(snapshot)).toEqual([inCache]);
    expect(places(path.join(root, 'link'))).toEqual([inCache]);
    expect(places(model, root)).toEqual([inCache]);
  });

  test('is the cache where the model cannot be written; a history there is still read', () => {
    const first = open();
    use(first, 1);
    first.close();
    const directory = '/proc/self';
    expect(usagePlaces(directory, 'id').map(place => place.writable)).toEqual([true, false]);
    expect(usagePlaces(directory, 'id')[1].path).toBe(`${directory}/${USAGE_FILE}`);
  });
});
