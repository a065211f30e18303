/** Model files that change while they are in use, and container records that are not what was written. */

import fs from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { convertCheckpoint } from '../../src/convert/convert.ts';
import { Runtime } from '../../src/engine/runtime.ts';
import { score } from '../../src/engine/score.ts';
import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import { shardName } from '../fixtures/checkpoint.ts';
import { writeTiny } from '../fixtures/tiny.ts';
import { TEST_RAM_BYTES } from '../support/packs.ts';
import { Bench, bytesOf, fileDirectory, rejection, withBench } from './engine-support.ts';
import { temporaryDirectory } from './fixtures.ts';

const PROMPT = bytesOf('Hi there');
const REQUEST = { temperature: 0, maxTokens: 4, ignoreEos: true };
const SHARD = shardName(1, 2);

const CHANGES: { name: string; change: (path: string) => void; fact: RegExp }[] = [
  {
    name: 'rewritten in place',
    change: path => fs.writeFileSync(path, fs.readFileSync(path)),
    fact: /modification time/,
  },
  {
    name: 'replaced by another file',
    change: path => {
      fs.copyFileSync(path, `${path}.new`);
      fs.renameSync(`${path}.new`, path);
    },
    fact: /inode/,
  },
  { name: 'cut', change: path => fs.truncateSync(path, fs.statSync(path).size - 1), fact: /size/ },
  { name: 'touched', change: path => fs.utimesSync(path, 1, 1), fact: /modification time/ },
  { name: 'deleted', change: path => fs.rmSync(path), fact: /gone/ },
];

describe.each(CHANGES)('a shard that is $name', ({ change, fact }) => {
  const expectChanged = (error: unknown, path: string) => {
    expect(error).toMatchObject({
      code: 'MODEL_CHANGED',
      message: expect.stringMatching(fact),
      details: { file: path },
    });
    expect((error as Error).message).toContain(path);
  };

  test('fails the next request, and the one it happens to before its end', async () => {
    const model = writeTiny(temporaryDirectory());
    const path = join(model, SHARD);
    await withBench({ model }, {}, bench => {
      let tokens = 0;
      const during = bench.run(PROMPT, REQUEST, {
        onEvent: event => {
          if (event.type === 'token' && ++tokens === REQUEST.maxTokens) change(path);
        },
      });
      expectChanged(during.error, path);
      expect(during.tokenIds).toHaveLength(4);
      expect(during.end).toBeNull();

      const before = bench.run(PROMPT, REQUEST);
      expectChanged(before.error, path);
      expect(before.events).toEqual([]);
      expect(() => score(bench.runtime, bench.session, { ids: PROMPT, nll: true })).toThrow(/changed while/);
    });
  });

  test('is noticed while the weights are loaded', async () => {
    const model = writeTiny(temporaryDirectory());
    const path = join(model, SHARD);
    const options = { model, ram: TEST_RAM_BYTES, threads: 1, context: 128 };
    const opened = Runtime.open(options, ({ doneBytes, totalBytes }) => {
      if (doneBytes === totalBytes) change(path);
    });
    expectChanged(await rejection(opened), path);
  });
});

const OVERWRITES = [
  { what: 'cut', overwrite: (path: string) => fs.truncateSync(path, 4096) },
  {
    what: 'filled with NaN',
    overwrite: (path: string) => fs.writeFileSync(path, Buffer.alloc(fs.statSync(path).size, 0xff)),
  },
];

test.each(OVERWRITES)(
  'a file that is $what in the middle of a request is the error, not what it led to',
  async ({ overwrite }) => {
    const model = writeTiny(temporaryDirectory());
    const path = join(model, SHARD);
    await withBench({ model, expertSlots: 2, chunk: 1, readers: 1 }, {}, bench => {
      const clean = bench.run(PROMPT, REQUEST);
      bench.session.truncate(0);
      const run = bench.run(PROMPT, REQUEST, {
        onEvent: event => {
          if (event.type === 'prefill' && event.done === 1) overwrite(path);
        },
      });
      expect(clean.error).toBeNull();
      expect(run.error).toMatchObject({ code: 'MODEL_CHANGED', details: { file: path } });
      expect(run.tokenIds).toEqual([]);
    });
  },
);

describe('hashes of a container', () => {
  const source = fileDirectory();
  const container = join(fileDirectory(), 'container');
  let good: string;
  let usedExpert: number;

  beforeAll(async () => {
    writeTiny(source);
    await convertCheckpoint({ source, destination: container, experts: 'q8', dense: 'q8' });
    await withBench({ model: container, verify: true }, {}, bench => {
      good = bench.run(PROMPT, REQUEST).end!.text;
      const { router } = score(bench.runtime, bench.session, { ids: PROMPT, router: true });
      usedExpert = router![1].ids[0];
    });
  });

  /** A copy of the container with one byte of a tensor changed. */
  const damaged = (tensor: string): string => {
    const model = temporaryDirectory();
    fs.cpSync(container, model, { recursive: true });
    const { files, tensors } = openCheckpoint(model);
    const { file, offset } = tensors.get(tensor)!;
    const bytes = fs.readFileSync(files[file].path);
    bytes[offset + 5] ^= 1;
    fs.writeFileSync(files[file].path, bytes);
    return model;
  };

  test('--verify refuses a damaged expert on its first load, by name', async () => {
    const model = damaged(`model.layers.1.mlp.experts.${usedExpert}.record`);
    await withBench({ model, verify: true }, {}, bench => {
      const run = bench.run(PROMPT, REQUEST);
      expect(run.error).toMatchObject({
        code: 'HASH_MISMATCH',
        message: expect.stringContaining(`layer 1 expert ${usedExpert}`),
        details: { expected: expect.stringMatching(/^[0-9a-f]{64}$/), got: expect.stringMatching(/^[0-9a-f]{64}$/) },
      });
      expect(run.tokenIds).toEqual([]);
      // and again: a record is trusted only after it was right once
      expect(bench.run(PROMPT, REQUEST).error?.code).toBe('HASH_MISMATCH');
    });
  });

  test('--verify refuses damaged resident weights while loading', async () => {
    const model = damaged('model.layers.0.self_attn.q_proj.weight');
    const error = await rejection(Bench.open({ model, verify: true }));
    expect(error).toMatchObject({
      code: 'HASH_MISMATCH',
      message: expect.stringContaining('layers.0.self_attn.q_proj'),
    });
  });

  test('--verify refuses a model that states no hashes', async () => {
    const error = await rejection(Bench.open({ model: source, verify: true }));
    expect(error).toMatchObject({ code: 'NO_HASHES', message: expect.stringContaining(source) });
  });

  test('without --verify hashes are not compared', async () => {
    const model = damaged(`model.layers.1.mlp.experts.${usedExpert}.record`);
    await withBench({ model }, {}, bench => expect(bench.run(PROMPT, REQUEST).error).toBeNull());
  });

  test('--verify changes nothing in a good container, however often records are read', async () => {
    await withBench({ model: container, verify: true, expertSlots: 2 }, {}, bench => {
      for (let i = 0; i < 2; i++) {
        bench.session.truncate(0);
        expect(bench.run(PROMPT, REQUEST).end?.text).toBe(good);
      }
    });
  });
});
