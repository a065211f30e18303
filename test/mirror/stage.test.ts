/** coli mirror: what is planned, copied, found again and found wrong. */

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, test } from 'vitest';
import { verifyText } from '../../src/cli/mirror-report.ts';
import { RECEIPT_FILE, readReceipt } from '../../src/engine/mirror-receipt.ts';
import { readModel } from '../../src/engine/model-files.ts';
import { planMirror } from '../../src/mirror/plan.ts';
import { PARTIAL, type StageOptions, stageMirror } from '../../src/mirror/stage.ts';
import { verifyMirror } from '../../src/mirror/verify.ts';
import { packDirectory } from '../support/packs.ts';

const root = fs.mkdtempSync(join(tmpdir(), 'coli-stage-'));
afterAll(() => fs.rmSync(root, { recursive: true, force: true }));

// three shards, experts in all of them
const model = join(root, 'model');
fs.cpSync(packDirectory('glm-moe-dsa'), model, { recursive: true });
const files = readModel({ model });
const SHARDS = [1, 2, 3].map(i => `model-0000${i}-of-00003.safetensors`);

let directory: string;
let count = 0;
beforeEach(() => {
  directory = join(root, `mirror ${count++}`);
});

const stage = (more: Partial<StageOptions> = {}) =>
  stageMirror({ files, directory, reserveBytes: 0, usage: 'off', writer: 'test', ...more });
const plan = (more: Partial<StageOptions> = {}) =>
  planMirror({ files, directory, reserveBytes: 0, usage: 'off', ...more });
const verify = () => verifyMirror({ files, directory });
const problems = async () => (await verify()).files.filter(file => file.problem !== null);
const at = (name: string) => join(directory, name);
const flip = (path: string, position: number) => {
  const bytes = fs.readFileSync(path);
  bytes.writeUInt8(bytes.readUInt8(position) ^ 1, position);
  fs.writeFileSync(path, bytes);
};
const expectWhole = () => {
  for (const name of SHARDS) expect(fs.readFileSync(at(name)).equals(fs.readFileSync(join(model, name)))).toBe(true);
};
const failure = async (work: () => unknown) => {
  try {
    await work();
  } catch (error) {
    return error as { code: string; message: string };
  }
  return null;
};

describe('plan', () => {
  test('writes nothing, and takes all that experts are read from', () => {
    const made = plan();
    expect(fs.existsSync(directory)).toBe(false);
    expect(made).toMatchObject({ expertShare: 1, limit: null, usageTokens: 0, modelFiles: 3 });
    expect(made.files.map(({ name }) => name).sort()).toEqual(SHARDS);
    expect(made.projectedFreeBytes).toBe(made.freeBytes - made.copyBytes);
  });

  test('keeps within the budget, and within what the drive has beyond the reserve', () => {
    const [first] = files.checkpoint.files.map(file => file.bytes);
    expect(plan({ budgetBytes: first })).toMatchObject({ limit: 'budget' });
    expect(plan({ budgetBytes: first }).copyBytes).toBeLessThanOrEqual(first);
    expect(plan({ budgetBytes: 10 })).toMatchObject({ files: [], expertShare: 0, limit: 'budget' });
    const freeBytes = () => 2_000_000;
    const tight = plan({ freeBytes, reserveBytes: 2_000_000 - first });
    expect(tight).toMatchObject({ limit: 'space' });
    expect(tight.projectedFreeBytes).toBeGreaterThanOrEqual(2_000_000 - first);
    expect(plan({ freeBytes, reserveBytes: 3_000_000 })).toMatchObject({ files: [], limit: 'space' });
  });

  test('what is there counts to the budget and costs nothing', async () => {
    const [, second] = files.checkpoint.files;
    fs.mkdirSync(directory);
    fs.copyFileSync(second.path, at(SHARDS[1]));
    const made = plan({ budgetBytes: second.bytes + 10 });
    expect(made.files).toEqual([{ name: SHARDS[1], bytes: second.bytes, state: 'there' }]);
    expect(made).toMatchObject({ copyBytes: 0, totalBytes: second.bytes, limit: 'budget' });
  });
});

describe('stage', () => {
  test('whole copies and a receipt; a second time there is nothing to do', async () => {
    const before = SHARDS.map(name => fs.statSync(join(model, name)).mtimeMs);
    const report = await stage();
    expect(report).toMatchObject({ kept: [], foreign: [] });
    expect([...report.copied].sort()).toEqual(SHARDS);
    expectWhole();
    expect(fs.readdirSync(directory).sort()).toEqual([RECEIPT_FILE, ...SHARDS].sort());
    expect(await problems()).toEqual([]);
    const written = fs.readFileSync(at(RECEIPT_FILE));
    const again = await stage();
    expect(again).toMatchObject({ copied: [], copiedBytes: 0 });
    expect(again.kept).toHaveLength(3);
    expect(fs.readFileSync(at(RECEIPT_FILE)).equals(written)).toBe(true);
    expect(SHARDS.map(name => fs.statSync(join(model, name)).mtimeMs)).toEqual(before);
  });

  test.each(['copy', 'check', 'rename', 'receipt'])('killed before %s, the next one ends right', async step => {
    const order = plan().files.map(({ name }) => name);
    const script = join(import.meta.dirname, 'killed-stage.ts');
    const { signal } = spawnSync(process.execPath, [script, model, directory, step, order[1]], { encoding: 'utf8' });
    expect(signal).toBe('SIGKILL');
    expect(readReceipt(directory)!.files.map(({ name }) => name)).toEqual([order[0]]);
    const left = await verify();
    expect(left.files.filter(file => file.problem !== null)).toEqual([]);
    const report = await stage();
    expect(report.kept).toContain(order[0]);
    expectWhole();
    expect(fs.readdirSync(directory).sort()).toEqual([RECEIPT_FILE, ...SHARDS].sort());
    expect(await problems()).toEqual([]);
  });

  test('stopped by the user: the finished file stays, the next one continues', async () => {
    const controller = new AbortController();
    const order = plan().files.map(({ name }) => name);
    const beforeStep = (step: string, name: string) => {
      if (step === 'check' && name === order[1]) controller.abort();
    };
    expect(await failure(() => stage({ signal: controller.signal, beforeStep }))).toMatchObject({
      code: 'MIRROR_STOPPED',
    });
    expect(fs.readdirSync(directory).sort()).toEqual([RECEIPT_FILE, order[0]].sort());
    expect(await stage()).toMatchObject({ kept: [order[0]] });
    expectWhole();
  });

  test('what is read back must be what was written', async () => {
    const [{ name }] = plan().files;
    const beforeStep = (step: string, file: string) => {
      if (step === 'check' && file === name) flip(at(file) + PARTIAL, 200_000);
    };
    expect(await failure(() => stage({ beforeStep }))).toMatchObject({ code: 'MIRROR_COPY_DIFFERS' });
    expect(fs.readdirSync(directory)).toEqual([]);
  });

  test('a copy that was damaged or cut later is made anew', async () => {
    await stage();
    flip(at(SHARDS[0]), 300_000);
    fs.truncateSync(at(SHARDS[1]), 1000);
    fs.rmSync(at(SHARDS[2]));
    expect((await problems()).map(({ name }) => name)).toEqual(SHARDS);
    const { copied, kept, copiedBytes } = await stage();
    expect({ copied: [...copied].sort(), kept }).toEqual({ copied: SHARDS, kept: [] });
    expect(copiedBytes).toBe(files.checkpoint.bytesOnDisk);
    expectWhole();
    expect(await problems()).toEqual([]);
  });

  test('files that were there are compared: a copy is kept, what is no copy is left as it is', async () => {
    fs.mkdirSync(directory);
    fs.copyFileSync(join(model, SHARDS[0]), at(SHARDS[0]));
    fs.copyFileSync(join(model, SHARDS[1]), at(SHARDS[1]));
    flip(at(SHARDS[1]), 300_000);
    fs.writeFileSync(at(SHARDS[2]), 'of another model');
    const damaged = fs.readFileSync(at(SHARDS[1]));
    const report = await stage();
    expect(report).toMatchObject({ copied: [], kept: [SHARDS[0]], foreign: [SHARDS[2], SHARDS[1]] });
    expect(report.plan.notes.join()).toMatch(/model-00003.* is left as it is/);
    expect(fs.readFileSync(at(SHARDS[1])).equals(damaged)).toBe(true);
    expect(fs.readFileSync(at(SHARDS[2]), 'utf8')).toBe('of another model');
  });

  test('links and directories in the place of files are left alone', async () => {
    fs.mkdirSync(directory);
    fs.symlinkSync(join(model, SHARDS[0]), at(SHARDS[0]));
    fs.mkdirSync(at(SHARDS[1]));
    // what lies under the name of a partial file is not followed
    const victim = join(root, `victim ${count}`);
    fs.writeFileSync(victim, 'mine');
    fs.symlinkSync(victim, at(SHARDS[2]) + PARTIAL);
    const { copied } = await stage();
    expect(copied).toEqual([SHARDS[2]]);
    expect(fs.readFileSync(victim, 'utf8')).toBe('mine');
    expect(fs.lstatSync(at(SHARDS[0])).isSymbolicLink()).toBe(true);
  });

  test('the directory of the model is refused, also through a link; so is a mirror of another model', async () => {
    const link = join(root, `link ${count}`);
    fs.symlinkSync(model, link);
    for (const same of [model, link]) {
      expect(await failure(() => stage({ directory: same }))).toMatchObject({ code: 'SAME_DIRECTORY' });
      expect(fs.readdirSync(model)).not.toContain(RECEIPT_FILE);
    }
    await stage();
    const other = { files: readModel({ model: packDirectory('olmoe') }) };
    expect(await failure(() => stage(other))).toMatchObject({ code: 'MIRROR_OTHER_MODEL' });
  });

  test('a path that is a file, and a directory that cannot be written', async () => {
    fs.writeFileSync(directory, '');
    for (const command of [stage, plan, verify]) {
      expect(await failure(command)).toMatchObject({
        code: 'MIRROR_UNUSABLE',
        message: expect.stringMatching(/is not a directory/),
      });
    }
    expect(await failure(() => plan({ directory: join(directory, 'below') }))).toMatchObject({
      code: 'MIRROR_UNUSABLE',
    });
    expect(await failure(() => stage({ directory: '/proc/mirror' }))).toMatchObject({ code: 'MIRROR_UNUSABLE' });
  });
});

describe('verify', () => {
  test('without a receipt every byte is compared with the model', async () => {
    await stage();
    fs.rmSync(at(RECEIPT_FILE));
    expect(await verify()).toMatchObject({ by: 'model', goodBytes: files.checkpoint.bytesOnDisk });
    flip(at(SHARDS[1]), 300_001);
    expect(await problems()).toEqual([
      { name: SHARDS[1], bytes: expect.any(Number), problem: expect.stringMatching(/first at byte 300001$/) },
    ]);
  });

  test('stopped: it says that nothing is kept', async () => {
    await stage();
    const signal = AbortSignal.abort();
    expect(await failure(() => verifyMirror({ files, directory, signal }))).toMatchObject({
      code: 'MIRROR_STOPPED',
      hint: expect.stringMatching(/from the beginning/),
    });
  });

  test('one file agrees, two agree', async () => {
    await stage({ budgetBytes: 600_000 });
    expect(verifyText(await verify())).toMatch(/^1 of 1 file \(.* agrees with its receipt\.$/);
    fs.appendFileSync(at(fs.readdirSync(directory).find(name => name.startsWith('model'))!), 'x');
    expect(verifyText(await verify())).toMatch(/\n0 of 1 file \(.* agrees with its receipt\.$/);
    await stage();
    expect(verifyText(await verify())).toMatch(/^3 of 3 files .* agree with/);
  });

  test('nothing there: no file', async () => {
    expect(await verify()).toMatchObject({ files: [] });
  });

  test('a link to the model is no copy', async () => {
    fs.mkdirSync(directory);
    fs.symlinkSync(join(model, SHARDS[0]), at(SHARDS[0]));
    expect(await problems()).toMatchObject([{ name: SHARDS[0], problem: expect.stringMatching(/own file/) }]);
  });

  test('a file that the receipt does not name is held against the model', async () => {
    await stage({ budgetBytes: 600_000 });
    const rest = SHARDS.find(name => !fs.existsSync(at(name)))!;
    fs.copyFileSync(join(model, rest), at(rest));
    flip(at(rest), 300_000);
    expect(await problems()).toMatchObject([{ name: rest }]);
  });

  const ENTRY = { name: SHARDS[0], bytes: 1, mtimeMs: 0, sha256: 'a'.repeat(64) };
  const hostile: [string, (receipt: Record<string, unknown>) => unknown][] = [
    ['no JSON', () => '{"version": 1,'],
    ['a list', () => []],
    ['of a newer version', receipt => ({ ...receipt, version: 2 })],
    ['an unknown field', receipt => ({ ...receipt, more: 1 })],
    ['a way out of the directory', receipt => ({ ...receipt, files: [{ ...ENTRY, name: '../model/x.safetensors' }] })],
    ['an absolute path', receipt => ({ ...receipt, files: [{ ...ENTRY, name: '/etc/passwd' }] })],
    ['a path of Windows', receipt => ({ ...receipt, files: [{ ...ENTRY, name: '..\\x' }] })],
    ['the directory itself', receipt => ({ ...receipt, files: [{ ...ENTRY, name: '.' }] })],
    ['the directory above', receipt => ({ ...receipt, files: [{ ...ENTRY, name: '..' }] })],
    ['an empty name', receipt => ({ ...receipt, files: [{ ...ENTRY, name: '' }] })],
    ['a name that drives a terminal', receipt => ({ ...receipt, files: [{ ...ENTRY, name: 'a\u001b[2J' }] })],
    ['a name that is too long', receipt => ({ ...receipt, files: [{ ...ENTRY, name: 'a'.repeat(256) }] })],
    ['a file twice', receipt => ({ ...receipt, files: [ENTRY, ENTRY] })],
    ['a negative size', receipt => ({ ...receipt, files: [{ ...ENTRY, bytes: -1 }] })],
    ['a hash that is none', receipt => ({ ...receipt, files: [{ ...ENTRY, sha256: 'A'.repeat(64) }] })],
    ['a key twice', () => '{"version": 1, "version": 1}'],
  ];
  test.each(hostile)('a receipt with %s is refused by every command', async (_, spoil) => {
    await stage({ budgetBytes: 600_000 });
    const content = spoil(JSON.parse(fs.readFileSync(at(RECEIPT_FILE), 'utf8')));
    fs.writeFileSync(at(RECEIPT_FILE), typeof content === 'string' ? content : JSON.stringify(content));
    for (const command of [verify, plan, stage]) {
      expect(await failure(command)).toMatchObject({ code: 'MIRROR_RECEIPT_BAD' });
    }
  });

  test('a receipt that lies is found out', async () => {
    await stage();
    const receipt = readReceipt(directory)!;
    receipt.files[0].sha256 = 'b'.repeat(64);
    receipt.files.push({ ...ENTRY, name: 'not-of-the-model.safetensors' });
    fs.writeFileSync(at(RECEIPT_FILE), JSON.stringify(receipt));
    expect((await problems()).map(({ problem }) => problem)).toEqual([
      expect.stringMatching(/the receipt says bbbb/),
      'the receipt names it, but the model has no such file',
    ]);
  });
});
