/** Where a failed read goes: dying readers, the engine's users, the command line. */

import { spawnSync } from 'node:child_process';
import { beforeAll, describe, expect, test } from 'vitest';
import { openEngine } from '../../src/engine/engine.ts';
import type { FaultKind } from '../../src/storage/faults.ts';
import { TEST_RAM_BYTES } from '../support/packs.ts';
import { fileDirectory, rejection, withBench } from './engine-support.ts';
import { type CleanRun, cleanRun, expectNoHarm, expectReadError, PROMPT, REQUEST, STEPWISE } from './fault-support.ts';

const model = fileDirectory();
const stepwise = { model, ...STEPWISE };
let clean: CleanRun;

beforeAll(async () => {
  clean = await cleanRun(model, 2);
});

test('a reader that dies fails the request it worked for; the other readers serve the next one', async () => {
  const hooks = { faults: { nth: clean.residentReads + 3, kind: 'exit' as FaultKind } };
  await withBench({ ...stepwise, readers: 2 }, hooks, bench => {
    const run = bench.run(PROMPT, REQUEST);
    expect(run.error).toMatchObject({ code: 'READER_DIED', details: { record: expect.stringMatching(/^layer/) } });
    expectNoHarm(bench, run, clean);
  });
});

test('when the last reader dies, every later request says so at once', async () => {
  const hooks = { faults: { nth: clean.residentReads + 1, kind: 'exit' as FaultKind } };
  await withBench(stepwise, hooks, bench => {
    for (let i = 0; i < 3; i++) expect(bench.run(PROMPT, REQUEST).error?.code).toBe('READER_DIED');
  });
});

test('through the engine: the error keeps its class and facts, and the next request works', async () => {
  const hooks = { faults: { nth: clean.residentReads + 2, kind: 'eio' as FaultKind } };
  const options = { ...stepwise, ram: TEST_RAM_BYTES, threads: 2, context: 128 };
  const engine = await openEngine(options, () => {}, hooks);
  try {
    const collect = async () => {
      const types: string[] = [];
      let text = '';
      for await (const event of engine.generate({ prompt: { ids: PROMPT }, ...REQUEST })) {
        types.push(event.type);
        if (event.type === 'token') text += event.text;
      }
      return { types, text };
    };
    expectReadError(await rejection(collect()), 'eio');
    const { types, text } = await collect();
    expect(text).toBe(clean.run.end?.text);
    expect(types.at(-1)).toBe('end');
  } finally {
    await engine.close();
  }
});

describe('through the command line', () => {
  const args = ['bin/coli.js', 'run', '--model', model, '--ram', '1G', '--ctx', '128', '--threads', '1', '--raw'];
  const request = ['--expert-slots', '2', '--temperature', '0', '--max-tokens', '3', '--ignore-eos', 'Hi!'];
  const coli = (fault: string, ...more: string[]) => {
    const env = { ...process.env, NO_COLOR: '1', COLI_FAULT_READ: fault };
    return spawnSync(process.execPath, [...args, ...more, ...request], { encoding: 'utf8', env, timeout: 30_000 });
  };

  test.each([
    { where: 'a resident weight', nth: () => 2 },
    { where: 'an expert', nth: () => clean.residentReads + 1 },
  ])('$where cannot be read: exit code 1 and one line', ({ nth }) => {
    const { status, stdout, stderr } = coli(`${nth()}:eio`);
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr.split('\n').filter(line => line.startsWith('coli: '))).toHaveLength(1);
    expect(stderr).toMatch(/coli: .*: read failed \(EIO\); .+\n$/);
    expect(stderr).not.toMatch(/\n {4}at /);
  });

  test('with --json the error is the one object on stdout', () => {
    const { status, stdout, stderr } = coli(`${clean.residentReads + 2}:short`, '--json');
    expect({ status, stderr }).toEqual({ status: 1, stderr: '' });
    const { error } = JSON.parse(stdout);
    expect(Object.keys(error).sort()).toEqual(['code', 'hint', 'message']);
    expect(error.code).toBe('SHORT_READ');
  });

  test('without a fault the same command answers', () => {
    const { status, stdout } = coli('99999:eio', '--json');
    expect(status).toBe(0);
    expect(JSON.parse(stdout).text).toBe(clean.run.end?.text);
  });
});
