/** The history of use decides what is read when: whatever becomes of it, answers are the same, and a tree that is not to change does not. */

import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Engine, EngineOptions, GenerateEvent } from '../../src/engine/api.ts';
import { openEngine } from '../../src/engine/engine.ts';
import { engineId } from '../../src/experts/usage/c-engine-usage.ts';
import { NANO } from '../support/nano.ts';
import { TEST_RAM_BYTES } from '../support/packs.ts';

/** A token of nano uses 24 experts. */
const SLOTS = 40;
const QUESTIONS = ['What does grep do?', 'Dove si trova Roma?'];

let root: string;
let model: string;
let expected: number[][];

/** A model of our own, with links to the weights of nano. */
function linkNano(): string {
  const directory = fs.mkdtempSync(path.join(root, 'nano-'));
  for (const name of fs.readdirSync(NANO)) fs.symlinkSync(path.join(NANO, name), path.join(directory, name));
  return directory;
}

async function ask(engine: Engine, question: string): Promise<Extract<GenerateEvent, { type: 'end' }>> {
  const prompt = { messages: [{ role: 'user', content: question }] };
  let end: GenerateEvent | undefined;
  for await (const event of engine.generate({ prompt, temperature: 1, seed: 5, maxTokens: 16 })) end = event;
  if (end?.type !== 'end') throw new Error('no end');
  return end;
}

async function withEngine<T>(options: Partial<EngineOptions>, use: (engine: Engine) => Promise<T>): Promise<T> {
  const engine = await openEngine({
    model,
    ram: TEST_RAM_BYTES,
    threads: 1,
    context: 256,
    expertSlots: SLOTS,
    ...options,
  });
  try {
    return await use(engine);
  } finally {
    await engine.close();
  }
}

async function answers(options: Partial<EngineOptions>) {
  const ids: number[][] = [];
  const { notes } = await withEngine(options, async engine => {
    for (const question of QUESTIONS) ids.push((await ask(engine, question)).tokenIds);
    return engine.info;
  });
  // closing has its notes too
  return { ids, notes: notes.filter(note => note.includes('usage')) };
}

const file = () => path.join(model, 'coli.usage');

beforeAll(async () => {
  root = fs.mkdtempSync(path.join(os.tmpdir(), 'coli-usage-'));
  process.env['XDG_CACHE_HOME'] = path.join(root, 'cache');
  model = linkNano();
  expected = (await answers({ usage: 'off' })).ids;
});
beforeEach(() => {
  model = linkNano();
});
afterAll(() => fs.rmSync(root, { recursive: true, force: true }));

test('answers are the same without a history, with a new one, and with a damaged one', async () => {
  expect(await answers({ usage: 'on' })).toEqual({ ids: expected, notes: [] });
  const saved = fs.readFileSync(file());
  fs.writeFileSync(file(), saved.subarray(0, saved.length - 5));
  const damaged = await answers({ usage: 'on' });
  expect(damaged.ids).toEqual(expected);
  expect(damaged.notes).toEqual([`${file()} is incomplete: the history of use begins anew`]);
});

test('answers are the same when experts were read before the first request, and with pins that change hands', async () => {
  // a history as of 600 tokens, in which one expert is to be pinned that will soon be colder than others
  const used = Array.from({ length: 4 }, (_, expert) => `0 ${expert} 600\n`).join('');
  fs.writeFileSync(path.join(model, '.coli_usage'), `-1 6 32\n-2 1 ${engineId('olmoe')}\n${used}1 0 1\n`);
  for (const policy of ['pin', 'lru'] as const) {
    const ids = await withEngine({ usage: 'on', policy }, async engine => {
      while (engine.status.bytesRead === 0) await setTimeout(5);
      return [(await ask(engine, QUESTIONS[0])).tokenIds, (await ask(engine, QUESTIONS[1])).tokenIds];
    });
    expect(ids).toEqual(expected);
  }
});

test('with off and read nothing is written', async () => {
  const tree = () => fs.readdirSync(model).sort();
  const before = tree();
  await answers({ usage: 'off' });
  await answers({ usage: 'read' });
  expect(tree()).toEqual(before);
});

test('a place that cannot be written is a note, and the answer is the same', async () => {
  const { ids, notes } = await answers({ usage: '/proc/self/coli.usage' });
  expect(ids).toEqual(expected);
  expect(notes).toHaveLength(1);
  expect(notes[0]).toMatch(/coli.usage cannot be written \(\w+\)/);
});

test('two engines at the same time both add to the history', async () => {
  const tokens = () => fs.readFileSync(file()).readDoubleLE(64);
  await answers({ usage: 'on' });
  const one = tokens();
  await Promise.all([answers({ usage: 'on' }), answers({ usage: 'on' })]);
  expect(tokens()).toBe(3 * one);
});
