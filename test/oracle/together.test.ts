/** Requests that are answered together, in reused sessions, give the bytes that each gives alone in a new one. */

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import type { EngineOptions } from '../../src/engine/api.ts';
import { KvFiles } from '../../src/engine/kv-files.ts';
import { Random } from '../../src/engine/random.ts';
import type { RuntimeHooks } from '../../src/engine/runtime.ts';
import { readReference } from '../../src/eval/reference.ts';
import { ask, NANO, withNano } from '../support/nano.ts';
import { PACKS, packDirectory, withRuntime } from '../support/packs.ts';
import { type Asked, Together } from '../support/together.ts';

const SLOTS = 8;
const TOKENS = 20;
const SMALL_ARENA_BYTES = 2 << 20;

/** Eight requests with prompts of 1 to 60 tokens, greedy and sampled. */
function requests(ids: readonly number[]): Asked[] {
  return Array.from({ length: SLOTS }, (_, i) => ({
    ids: ids.slice(i, i + [1, 60, 7, 33, 2, 48, 16, 21][i]),
    temperature: i % 2 === 0 ? 0 : 1,
    topP: 0.95,
    seed: i,
    maxTokens: TOKENS,
    ignoreEos: true,
  }));
}

function together<T>(
  options: EngineOptions,
  use: (all: Together) => T | Promise<T>,
  hooks: RuntimeHooks = {},
): Promise<T> {
  return withRuntime(
    { context: 256, threads: 1, ...options },
    runtime => use(new Together(runtime, options.model)),
    hooks,
  );
}

const tokens = (answers: readonly { tokenIds: readonly number[] }[]) =>
  answers.map(({ tokenIds }) => tokenIds.join(' '));

describe.each(PACKS)('%s', pack => {
  const model = packDirectory(pack);
  const asked = requests(readReference(model, 3).inputIds);

  test.each(['f32', 'bf16'] as const)('eight together are eight alone, %s keys and values', async kv => {
    const alone = await together({ model, kv }, all => tokens(asked.map(one => all.all([one])[0])));
    expect(new Set(alone).size).toBe(SLOTS);
    const variants: [Partial<EngineOptions>, RuntimeHooks?][] = [
      [{}],
      [{ expertSlots: 4 }],
      [{ threads: 2, chunk: 16 }],
      [{ chunk: 3, expertSlots: 12 }],
      [{ kernels: 'reference', chunk: 64 }],
      [{ kernels: 'wasm', threads: 2, expertSlots: 20, chunk: 64 }, { arenaBytes: SMALL_ARENA_BYTES }],
    ];
    for (const [options, hooks] of variants) {
      const got = await together({ model, kv, slots: SLOTS, ...options }, all => tokens(all.all(asked)), hooks);
      expect(got, JSON.stringify(options)).toEqual(alone);
    }
  });
});

test('bf16 keys and values are other numbers', async () => {
  const model = packDirectory('olmoe');
  const ids = readReference(model, 3).inputIds.slice(0, 60);
  const logprobs = (kv: 'f32' | 'bf16') =>
    together({ model, kv }, all => {
      const [{ events }] = all.all([{ ids, temperature: 0, maxTokens: 1, logprobs: 0 }]);
      return events.flatMap(event => (event.type === 'token' ? [event.logprobs!.logprob] : []));
    });
  const [f32] = await logprobs('f32');
  const [bf16] = await logprobs('bf16');
  expect(bf16).not.toBe(f32);
  expect(bf16).toBeCloseTo(f32, 1);
});

test('more requests than sessions wait their turn and get the same tokens', async () => {
  const model = packDirectory('olmoe');
  const asked = requests(readReference(model, 3).inputIds);
  const alone = await together({ model }, all => tokens(asked.map(one => all.all([one])[0])));
  expect(await together({ model, slots: 3 }, all => tokens(all.all(asked)))).toEqual(alone);
});

test('together they read fewer experts', async () => {
  const model = NANO;
  const ids = Array.from({ length: 200 }, (_, i) => 10 + ((i * 37) % 3000));
  const asked = requests(ids).map(one => ({ ...one, temperature: 0 }));
  const options = { model, expertSlots: 48 };
  const alone = await together(options, all => {
    const answers = tokens(asked.map(one => all.all([one])[0]));
    return { answers, requests: all.status.expertRequests, bytes: all.status.bytesRead };
  });
  await together({ ...options, slots: SLOTS }, all => {
    expect(tokens(all.all(asked))).toEqual(alone.answers);
    const { decodeTokens, decodeSteps, expertRequests, bytesRead } = all.status;
    expect(decodeTokens).toBe(SLOTS * TOKENS);
    expect(decodeTokens / decodeSteps).toBeGreaterThanOrEqual(4);
    expect(expertRequests).toBeLessThan(0.7 * alone.requests);
    expect(bytesRead).toBeLessThan(0.7 * alone.bytes);
  });
});

test('a long prompt does not hold up the answers of others', async () => {
  const model = packDirectory('olmoe');
  const ids = readReference(model, 3).inputIds;
  const long = Array.from({ length: 200 }, (_, i) => ids[i % ids.length]);
  await together({ model, slots: 2, chunk: 16 }, all => {
    let tokens = 0;
    all.add({ ids: ids.slice(0, 5), temperature: 0, maxTokens: 100, ignoreEos: true }, ({ type }) => {
      if (type === 'token') tokens++;
    });
    all.scheduler.step();
    const other = all.add({ ids: long, temperature: 0, maxTokens: 1 });
    let steps = 0;
    for (; other().finishReason === null && steps < 1000; steps++) {
      all.scheduler.step();
      expect(tokens).toBe(Math.min(100, 2 + steps));
    }
    // a row of each pass is the other's, and five tokens are known
    expect(steps).toBeGreaterThanOrEqual(195 / 15);
    all.finish();
    expect(other().finishReason).toBe('length');
  });
});

test('a request that is given up takes nothing from the others, whatever it was doing', async () => {
  const model = packDirectory('olmoe');
  const asked = requests(readReference(model, 3).inputIds);
  const alone = await together({ model }, all => tokens(asked.map(one => all.all([one])[0])));
  for (const when of ['start', 'prefill', 'token'] as const) {
    await together({ model, slots: SLOTS, chunk: 16 }, all => {
      const answers = asked.map((one, i) => all.add(one, event => (i % 3 === 0 ? event.type === when : false)));
      all.finish();
      for (const [i, answer] of answers.entries()) {
        const { finishReason, tokenIds } = answer();
        expect(finishReason).toBe(i % 3 === 0 ? 'cancelled' : 'length');
        if (i % 3 !== 0) expect(tokenIds.join(' ')).toBe(alone[i]);
      }
      expect(tokens(all.all(asked))).toEqual(alone);
    });
  }
});

test('a read that fails once does not show, and one that always fails ends only those who need it', async () => {
  const model = packDirectory('olmoe');
  const asked = requests(readReference(model, 3).inputIds);
  const alone = await together({ model }, all => tokens(asked.map(one => all.all([one])[0])));
  let failed = 0;
  for (const nth of [60, 75, 90, 120]) {
    const options = { model, slots: SLOTS, expertSlots: 6, prefetch: 'off' } as const;
    await together(
      options,
      all => {
        const answers = all.all(asked);
        failed += answers.filter(({ error }) => error !== null).length;
        expect(tokens(answers.filter(({ error }) => error === null))).toEqual(
          alone.filter((_, i) => answers[i].error === null),
        );
        expect(tokens(all.all(asked))).toEqual(alone);
      },
      { faults: { nth, kind: 'eio' } },
    );
  }
  expect(failed).toBe(0);
});

test('any order of conversations, edited at any place, is answered as by a new engine', async () => {
  const model = packDirectory('olmoe');
  const ids = readReference(model, 3).inputIds;
  const random = new Random(11);
  const below = (n: number) => Math.floor(random.nextFloat64() * n);
  const asked: Asked[] = [];
  let history: number[] = [];
  for (let i = 0; i < 24; i++) {
    const kept = [0, history.length, below(history.length + 1), Math.max(0, history.length - 3)][below(4)];
    const added = Array.from({ length: 1 + below(70) }, () => ids[below(ids.length)]);
    history = [...history.slice(0, kept), ...added].slice(0, 200);
    asked.push({ ids: history, temperature: 0, maxTokens: 6, ignoreEos: true });
  }
  const fresh = await together({ model }, async all => {
    const answers: string[] = [];
    for (const one of asked) {
      answers.push(tokens(new Together(all.runtime, model).all([one]))[0]);
    }
    return answers;
  });
  for (const slots of [1, 3]) {
    let cached = 0;
    await together({ model, slots }, all => {
      for (const [i, one] of asked.entries()) {
        const [answer] = all.all([one]);
        cached += answer.cachedTokens;
        expect(answer.tokenIds.join(' '), `request ${i} with ${slots} sessions`).toBe(fresh[i]);
      }
    });
    expect(cached).toBeGreaterThan(500);
  }
});

test('through the engine: eight at once are eight alone', async () => {
  const questions = [
    'What is grep?',
    'Hi',
    'Count to ten.',
    'Tell me a story.',
    'Who are you?',
    'Why?',
    'List three colours.',
    'And?',
  ];
  const alone = await withNano({}, async engine => {
    const texts: string[] = [];
    for (const question of questions) texts.push((await ask(engine, question)).end.text);
    return texts;
  });
  await withNano({ slots: SLOTS }, async engine => {
    const answers = await Promise.all(questions.map(question => ask(engine, question)));
    expect(answers.map(({ end }) => end.text)).toEqual(alone);
    expect(engine.status.decodeTokens / engine.status.decodeSteps).toBeGreaterThan(1);
    expect(engine.status.active).toBe(0);
  });
});

describe('saved keys and values', () => {
  const model = packDirectory('olmoe');
  const { inputIds } = readReference(model, 3);
  const long = (first: number) => Array.from({ length: 200 }, (_, i) => inputIds[(first + i) % inputIds.length]);
  const first = { ids: long(0), temperature: 0, maxTokens: 8, ignoreEos: true };
  const second = { ids: long(17), temperature: 0, maxTokens: 8, ignoreEos: true };

  /** Answers in an engine of one session whose files are in `directory`. */
  async function answers(directory: string, asked: readonly Asked[], options: Partial<EngineOptions> = {}) {
    const notes: string[] = [];
    const got = await together({ model, ...options }, all => {
      const identity = Buffer.from(all.runtime.info.fingerprint, 'hex');
      const { blockBytes } = all.runtime.batch.cache;
      const files = new KvFiles({ directory, identity, blockBytes, maxBytes: 1e9, note: line => notes.push(line) });
      const withFiles = new Together(all.runtime, model, files);
      const result = asked.map(one => withFiles.all([one])[0]);
      withFiles.pool.close();
      return { result, restored: withFiles.status.restoredTokens };
    });
    return { ...got, notes };
  }

  test('two conversations in one session, and after a restart, are computed once', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'coli-kv-'));
    const cold = await together({ model }, all =>
      tokens([first, second].map(one => new Together(all.runtime, model).all([one])[0])),
    );
    const begun = await answers(directory, [first, second, first]);
    expect(tokens(begun.result)).toEqual([cold[0], cold[1], cold[0]]);
    // blocks of 64 tokens are saved whole
    expect(begun.result.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 0, 192]);
    for (let restart = 0; restart < 2; restart++) {
      const again = await answers(directory, [second, first]);
      expect(tokens(again.result)).toEqual([cold[1], cold[0]]);
      expect(again.result.map(({ cachedTokens }) => cachedTokens)).toEqual([192, 192]);
      expect(again.restored).toBe(384);
      expect(again.notes).toEqual([]);
    }
    const bf16 = await answers(directory, [first], { kv: 'bf16' });
    expect(bf16.result[0].cachedTokens).toBe(0);
    const exact = await answers(directory, [first], { activations: 'exact' });
    expect(exact.result[0].cachedTokens).toBe(0);
    rmSync(directory, { recursive: true });
  });

  test('a damaged file costs time and one line, never the text', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'coli-kv-'));
    const { result } = await answers(directory, [first]);
    const files = readdirSync(directory, { recursive: true, withFileTypes: true })
      .filter(entry => entry.isFile() && entry.name.startsWith('00000001-'))
      .map(entry => join(entry.parentPath, entry.name));
    expect(files).toHaveLength(1);
    const bytes = readFileSync(files[0]);
    bytes[bytes.length >> 1] ^= 1;
    writeFileSync(files[0], bytes);
    const damaged = await answers(directory, [first]);
    expect(tokens(damaged.result)).toEqual(tokens(result));
    expect(damaged.result[0].cachedTokens).toBe(64);
    expect(damaged.notes).toHaveLength(1);
    rmSync(directory, { recursive: true });
  });
});
