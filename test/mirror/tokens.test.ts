/** The promise with mirrors: the same bits from 0 to 4 of them, whole or in part, good or failing. */

import { createHash } from 'node:crypto';
import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { EngineOptions } from '../../src/engine/api.ts';
import { inspectModel } from '../../src/engine/describe.ts';
import { openEngine } from '../../src/engine/engine.ts';
import { RECEIPT_FILE, readReceipt } from '../../src/engine/mirror-receipt.ts';
import { readModel } from '../../src/engine/model-files.ts';
import type { RuntimeHooks } from '../../src/engine/runtime.ts';
import { score } from '../../src/engine/score.ts';
import { stageMirror } from '../../src/mirror/stage.ts';
import { packDirectory, TEST_RAM_BYTES, withRuntime } from '../support/packs.ts';

const root = fs.mkdtempSync(join(tmpdir(), 'coli-mirrors-'));
afterAll(() => fs.rmSync(root, { recursive: true, force: true }));
const NANO = 'models/nano';

function copyOf(model: string, name: string, keep: (shard: string, index: number) => boolean = () => true): string {
  const directory = join(root, name);
  fs.mkdirSync(directory);
  const shards = fs.readdirSync(model).filter(each => /^model.*\.safetensors$/.test(each));
  for (const each of shards.filter(keep)) fs.copyFileSync(join(model, each), join(directory, each));
  return directory;
}

describe.each(['olmoe', 'gpt-oss-mxfp4', 'glm-moe-dsa'])('%s', pack => {
  const model = packDirectory(pack);
  const ids = Array.from({ length: 40 }, (_, i) => (i * 37 + 5) % 200);
  const base: EngineOptions = { model, context: 64, threads: 1, expertSlots: 6, chunk: 8 };

  const run = async (options: Partial<EngineOptions>, hooks: RuntimeHooks = {}) => {
    const late: string[] = [];
    const outcome = await withRuntime(
      { ...base, ...options },
      (runtime, session) => {
        const { logits } = score(runtime, session, { ids, logits: true });
        const digest = createHash('sha256').update(Buffer.from(logits!.buffer)).digest('hex');
        return { digest, notes: runtime.info.notes };
      },
      { ...hooks, onNote: line => late.push(line) },
    );
    return { ...outcome, late };
  };

  let expected: string;
  let mirrors: string[];
  beforeAll(async () => {
    expected = (await run({})).digest;
    mirrors = [0, 1].map(i => copyOf(model, `${pack} ${i}`));
    mirrors.push(copyOf(model, `${pack} part`, (_, index) => index === 1));
    mirrors.push(copyOf(model, `${pack} other part`, (_, index) => index !== 1));
  });

  test('0 to 4 mirrors, whole ones and parts, measured and declared', async () => {
    for (let count = 1; count <= 4; count++) {
      const some = mirrors.slice(0, count);
      const driveSpeeds = count % 2 === 0 ? undefined : [0, ...some.map((_, i) => i + 1)];
      expect((await run({ mirrors: some, driveSpeeds })).digest, `${count}`).toBe(expected);
    }
  });

  test.each(['eio', 'short'] as const)('a mirror that fails at any read (%s)', async kind => {
    for (const nth of [1, 60]) {
      const { digest, notes, late } = await run(
        { mirrors: mirrors.slice(0, 1), driveSpeeds: [0, 1] },
        { faults: { nth, kind } },
      );
      expect(digest).toBe(expected);
      expect([...notes, ...late].filter(note => note.startsWith('WARNING: a mirror fails'))).toHaveLength(1);
    }
  });
});

test('the program: a mirror that is cut while it is used fails no request, and is told once', async () => {
  const mirror = copyOf(NANO, 'nano');
  const notes: string[] = [];
  const options = { model: NANO, ram: TEST_RAM_BYTES, threads: 1, expertSlots: 8, prefetch: 'off' } as const;
  const request = { prompt: { text: 'The sea' }, maxTokens: 12, temperature: 0, ignoreEos: true };
  const ask = async (more: Partial<EngineOptions>, before: () => void = () => {}) => {
    const engine = await openEngine({ ...options, usage: 'off', ...more }, () => {}, {
      onNote: line => notes.push(line),
    });
    try {
      before();
      let text = '';
      for await (const event of engine.generate(request)) if (event.type === 'end') text = event.text;
      return text;
    } finally {
      await engine.close();
    }
  };
  const expected = await ask({});
  const cut = () => {
    for (const name of fs.readdirSync(mirror)) fs.truncateSync(join(mirror, name), 4096);
  };
  expect(await ask({ mirrors: [mirror], driveSpeeds: [0, 1] }, cut)).toBe(expected);
  expect(notes.filter(note => note.startsWith('WARNING: a mirror fails'))).toHaveLength(1);
});

const digest = (options: Partial<EngineOptions>, before: () => void = () => {}) =>
  withRuntime({ model: NANO, context: 64, threads: 1, expertSlots: 8, ...options }, (runtime, session) => {
    before();
    const { logits } = score(runtime, session, { ids: [5, 6, 7, 8], logits: true });
    return createHash('sha256').update(Buffer.from(logits!.buffer)).digest('hex');
  });

const staged = async (name: string): Promise<string> => {
  const directory = join(root, name);
  await stageMirror({ files: readModel({ model: NANO }), directory, reserveBytes: 0, usage: 'off', writer: 'test' });
  return directory;
};

/** Most of the weights, in place: same size, same header. */
const overwrite = (directory: string, byte: number): void => {
  const path = join(directory, 'model-00002-of-00002.safetensors');
  const fd = fs.openSync(path, 'r+');
  const { size } = fs.fstatSync(fd);
  fs.writeSync(fd, Buffer.alloc(size - 65_536, byte), 0, size - 65_536, 65_536);
  fs.closeSync(fd);
};

test('a staged mirror whose bytes were changed is not used, and told', async () => {
  const mirror = await staged('nano changed');
  const mirrors = { mirrors: [mirror], driveSpeeds: [0, 1] };
  overwrite(mirror, 0x55);
  expect(await digest(mirrors)).toBe(await digest({}));
  const { notes } = inspectModel({ model: NANO, ...mirrors });
  expect(notes.filter(note => /"model-00002.*coli mirror verify/.test(note))).toHaveLength(1);
  // with its time set back the samples still tell
  const { mtimeMs } = readReceipt(mirror)!.files.find(({ name }) => name.includes('00002'))!;
  fs.utimesSync(join(mirror, 'model-00002-of-00002.safetensors'), 1, mtimeMs / 1000);
  expect(await digest(mirrors)).toBe(await digest({}));
});

test('what is overwritten while it is used: hashes find it with --verify or without a receipt, else nothing does', async () => {
  const expected = await digest({});
  const outcome = async (name: string, more: Partial<EngineOptions>, receipt: boolean) => {
    const mirror = await staged(name);
    if (!receipt) fs.rmSync(join(mirror, RECEIPT_FILE));
    return digest({ mirrors: [mirror], driveSpeeds: [0, 1], ...more }, () => overwrite(mirror, 0));
  };
  expect(await outcome('nano rots 1', { verify: true }, true)).toBe(expected);
  expect(await outcome('nano rots 2', {}, false)).toBe(expected);
  // the test can fail: without a hash the damage is read
  expect(await outcome('nano rots 3', {}, true)).not.toBe(expected);
});

test('values that are not finite: mirrors are named as a possible reason where they are used', async () => {
  const mirror = await staged('nano not finite');
  const mirrors = { mirrors: [mirror], driveSpeeds: [0, 1], usage: 'off' };
  const engine = await openEngine({ model: NANO, ram: TEST_RAM_BYTES, threads: 1, expertSlots: 8, ...mirrors });
  try {
    overwrite(mirror, 0xff);
    const run = async () => {
      for await (const _ of engine.generate({ prompt: { text: 'The sea' }, maxTokens: 4 }));
    };
    await expect(run()).rejects.toMatchObject({
      code: expect.stringMatching(/^NON_FINITE/),
      hint: expect.stringMatching(/damaged.*; or a mirror is damaged: .*coli mirror verify/),
    });
  } finally {
    await engine.close();
  }
});

test('another training of the same model, with the same headers, is no mirror', async () => {
  const mirror = copyOf(NANO, 'nano trained on');
  for (const name of fs.readdirSync(mirror).filter(each => each.endsWith('.safetensors'))) {
    const bytes = fs.readFileSync(join(mirror, name));
    for (let at = 8 + Number(bytes.readBigUInt64LE(0)); at < bytes.length; at += 1000) bytes[at] ^= 1;
    fs.writeFileSync(join(mirror, name), bytes);
  }
  const mirrors = { mirrors: [mirror], driveSpeeds: [0, 1] };
  expect(await digest(mirrors)).toBe(await digest({}));
  const { notes } = inspectModel({ model: NANO, ...mirrors });
  expect(notes.filter(note => note.includes('its weights differ'))).toHaveLength(2);
});

test('too many mirrors and speeds that do not fit are refused; a mirror that is not there is a note', () => {
  const refusal = (options: Partial<EngineOptions>) => {
    try {
      inspectModel({ model: NANO, ...options });
    } catch (error) {
      return error as { code: string; message: string };
    }
    return null;
  };
  const code = (options: Partial<EngineOptions>) => refusal(options)?.code;
  expect(code({ mirrors: ['a', 'b', 'c', 'd', 'e'] })).toBe('BAD_MIRRORS');
  for (const driveSpeeds of [[1], [1, 1, 1], [0, 0], []]) {
    expect(code({ mirrors: ['a'], driveSpeeds })).toBe('BAD_DRIVE_SPEEDS');
  }
  expect(refusal({ driveSpeeds: [1] })).toMatchObject({
    code: 'BAD_DRIVE_SPEEDS',
    message: expect.stringMatching(/^--drive-speeds needs --mirror/),
  });
  expect(inspectModel({ model: NANO, mirrors: ['/nowhere'] }).notes.join()).toMatch(/nowhere is not used/);
});
