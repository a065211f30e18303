/**
 * What sessions keep between requests shows in time only: every answer has the bytes of an answer in a new session, for every kind
 * of state. Long prompts, so that windows go round and copies of recurrent states are taken.
 */

import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { openEngine } from '../../src/engine/engine.ts';
import { Random } from '../../src/engine/random.ts';
import type { RuntimeHooks } from '../../src/engine/runtime.ts';
import { readReference } from '../../src/eval/reference.ts';
import { packDirectory, STATE_PACKS, TEST_RAM_BYTES, withRuntime } from '../support/packs.ts';
import { type Answer, type Asked, Together } from '../support/together.ts';

const CONTEXT = 1024;
const SMALL_ARENA_BYTES = 4 << 20;

type Options = Omit<Parameters<typeof withRuntime>[0], 'model'>;

describe.each(STATE_PACKS)('%s', pack => {
  const model = packDirectory(pack);
  const { inputIds } = readReference(model, 3);
  /** Ids without a pattern: `text` n from a seed. */
  const text = (n: number, seed: number): number[] => {
    const random = new Random(seed);
    return Array.from({ length: n }, () => inputIds[Math.floor(random.nextFloat64() * inputIds.length)]);
  };
  const ask = (ids: readonly number[], maxTokens = 12): Asked => ({
    ids,
    temperature: 0,
    maxTokens,
    ignoreEos: true,
    logprobs: 0,
  });
  const run = <T>(options: Options, use: (all: Together) => T, hooks: RuntimeHooks = {}) =>
    withRuntime(
      { model, context: CONTEXT, chunk: 64, ...options },
      runtime => use(new Together(runtime, model)),
      hooks,
    );
  /** Token ids and the bits of their probabilities. */
  const shown = ({ events, error }: Answer) => {
    expect(error).toBeNull();
    return events.flatMap(event => (event.type === 'token' ? [`${event.id}:${event.logprobs!.logprob}`] : []));
  };
  /** Each in a session of its own. */
  const fresh = (asked: readonly Asked[]) =>
    run({}, all => asked.map(one => shown(new Together(all.runtime, model).all([one])[0])));
  const textOf = ({ tokenIds }: Answer) => [...tokenIds];

  test('going back k tokens and generating again gives the same bytes', async () => {
    await run({}, all => {
      const first = ask(text(400, 1), 48);
      const [answer] = all.all([first]);
      const whole = [...first.ids, ...textOf(answer)];
      const bits = shown(answer);
      expect(new Set(answer.tokenIds).size).toBeGreaterThan(5);
      for (const k of [1, 2, 7, 40, 48, 3, 48]) {
        const [again] = all.all([ask(whole.slice(0, whole.length - k), k)]);
        expect(shown(again), `${k} tokens`).toEqual(bits.slice(-k));
        expect(again.cachedTokens, `${k} tokens`).toBeGreaterThanOrEqual(384);
      }
    });
  });

  test('going back far, and to another text, gives the bytes of a new session', async () => {
    const long = text(700, 2);
    const asked = [700, 650, 20, 699, 300, 1].map(n => ask(long.slice(0, n)));
    asked.splice(3, 0, ask([...long.slice(0, 500), ...text(90, 3)]));
    const expected = await fresh(asked);
    await run({}, all => {
      for (const [i, one] of asked.entries()) expect(shown(all.all([one])[0]), `request ${i}`).toEqual(expected[i]);
    });
  });

  test.each([
    { name: 'one session', options: { slots: 1 } },
    { name: 'three sessions, two lanes', options: { slots: 3, threads: 2 } },
    { name: 'three sessions in several memories', options: { slots: 3 }, arenaBytes: SMALL_ARENA_BYTES },
    { name: 'bf16 keys and values', options: { slots: 2, kv: 'bf16' as const } },
  ])('conversations that go on, change and part: $name', async ({ options, arenaBytes }) => {
    const random = new Random(7);
    const below = (n: number) => Math.floor(random.nextFloat64() * n);
    const asked: Asked[] = [];
    let history: number[] = [];
    for (let i = 0; i < 14; i++) {
      const kept = [0, history.length, below(history.length + 1), Math.max(0, history.length - 3)][below(4)];
      history = [...history.slice(0, kept), ...text(1 + below(220), i)].slice(0, 900);
      asked.push(ask(history, 4));
    }
    const expected = await run({ kv: options.kv }, all =>
      asked.map(one => shown(new Together(all.runtime, model).all([one])[0])),
    );
    await run(
      options,
      all => {
        if (arenaBytes) expect(all.runtime.compute.arenas.count).toBeGreaterThan(1);
        for (const [i, one] of asked.entries()) expect(shown(all.all([one])[0]), `request ${i}`).toEqual(expected[i]);
      },
      { arenaBytes },
    );
  });

  test('a follow-up computes what is new, and a changed last message not much more', async () => {
    await run({}, all => {
      const first = text(300, 4);
      const [answer] = all.all([ask(first)]);
      const history = [...first, ...textOf(answer)];
      const [second] = all.all([ask([...history, ...text(200, 5)])]);
      // the last token of an answer is not fed
      expect(second.cachedTokens).toBe(history.length - 1);
      // as a template does that leaves reasoning out: the answer is not written as it was
      const [changed] = all.all([ask([...history, ...text(199, 5), ...text(150, 6)])]);
      expect(changed.cachedTokens).toBeGreaterThanOrEqual(history.length + 200 - 16 - 1);
      const [other] = all.all([ask([...history, ...text(150, 8)])]);
      expect(other.cachedTokens).toBeGreaterThanOrEqual(first.length - 16);
    });
  });

  test('prompts that begin alike: from the third on the beginning is not computed again', async () => {
    const system = text(400, 9);
    const asked = [10, 11, 12].map(seed => ask([...system, ...text(180, seed)]));
    const expected = await fresh(asked);
    for (const slots of [1, 3]) {
      await run({ slots }, all => {
        const answers = asked.map(one => all.all([one])[0]);
        expect(answers.map(shown)).toEqual(expected);
        expect(answers[2].cachedTokens, `${slots} sessions`).toBe(400);
      });
    }
  });

  test('a copy of another text is not taken for one of this', async () => {
    const other = text(600, 51);
    const asked = [ask(text(500, 50)), ask(other), ask([...other.slice(0, 520), ...text(30, 52)])];
    const expected = await fresh(asked);
    await run({}, all => {
      for (const [i, one] of asked.entries()) expect(shown(all.all([one])[0]), `request ${i}`).toEqual(expected[i]);
    });
  });

  test('together, in sessions that were copied, each answer is that of a new session', async () => {
    const system = text(200, 13);
    const asked = [14, 15, 16, 17].map(seed => ask([...system, ...text(150, seed)], 20));
    const expected = await fresh([ask(system), ...asked]);
    await run({ slots: 4 }, all => {
      all.all([ask(system)]);
      expect(all.all(asked).map(shown)).toEqual(expected.slice(1));
      expect(all.all(asked).map(shown)).toEqual(expected.slice(1));
    });
  });

  test('a request that is given up takes nothing from the others, and nothing from itself when it comes again', async () => {
    const asked = [300, 40, 250, 90].map((n, i) => ask(text(n, 20 + i), 24));
    const expected = await fresh(asked);
    for (const when of ['prefill', 'token'] as const) {
      await run({ slots: 4 }, all => {
        let events = 0;
        const answers = asked.map((one, i) =>
          all.add(one, event => i % 2 === 0 && event.type === when && events++ > 2),
        );
        all.finish();
        for (const i of [1, 3]) expect(shown(answers[i]()), when).toEqual(expected[i]);
        for (const i of [0, 2]) expect(answers[i]().finishReason).toBe('cancelled');
        expect(all.all(asked).map(shown)).toEqual(expected);
      });
    }
  });

  test('a pass that is given up in the middle leaves the next answer right', async () => {
    const first = ask(text(300, 30));
    const second = ask([...first.ids, ...text(90, 31)]);
    const expected = await fresh([first, second]);
    await run({}, all => {
      const { runtime } = all;
      const { forward } = runtime.model;
      const model = runtime.model as { forward: typeof forward };
      let layers = 0;
      let isGivenUp = false;
      const given: boolean[] = [];
      model.forward = (batch, observer) => {
        try {
          forward(batch, {
            ...observer,
            beforeLayer(layer) {
              // before the last layer of the third pass of the prompt
              isGivenUp ||= ++layers === 3 * runtime.info.layers;
              observer?.beforeLayer?.(layer);
            },
          });
          given.push(false);
        } catch (error) {
          given.push(true);
          throw error;
        }
      };
      const answer = all.add(
        second,
        () => {},
        () => isGivenUp,
      );
      all.finish();
      expect(given).toEqual([false, false, true]);
      model.forward = forward;
      expect(answer().finishReason).toBe('cancelled');
      expect(shown(all.all([second])[0])).toEqual(expected[1]);
      expect(shown(all.all([first])[0])).toEqual(expected[0]);
    });
  });

  test('a pass that fails ends no answer when it succeeds the second time', async () => {
    const asked = [180, 40, 100].map((n, i) => ask(text(n, 40 + i), 30));
    const expected = await fresh(asked);
    await run({ slots: 3 }, all => {
      const { forward } = all.runtime.model;
      const model = all.runtime.model as { forward: typeof forward };
      let passes = 0;
      model.forward = (batch, observer) => {
        // in all layers but the last, every fifth pass
        const last = ++passes % 5 === 0 ? all.runtime.info.layers - 1 : -1;
        forward(batch, {
          ...observer,
          beforeLayer(layer) {
            if (layer === last) throw new Error('a pass that fails');
            observer?.beforeLayer?.(layer);
          },
        });
      };
      const answers = all.all(asked);
      model.forward = forward;
      expect(passes).toBeGreaterThan(20);
      const failed = answers.filter(({ error }) => error !== null);
      expect(failed.every(({ error }) => (error as Error).message === 'a pass that fails')).toBe(true);
      expect(failed.length).toBeLessThan(answers.length);
      for (const [i, answer] of answers.entries()) {
        if (answer.error === null) expect(shown(answer)).toEqual(expected[i]);
      }
      expect(all.all(asked).map(shown)).toEqual(expected);
    });
  });

  test('a session is as before when making good a failed pass fails too', async () => {
    await withRuntime({ model, context: CONTEXT, chunk: 64 }, (runtime, session) => {
      const { forward } = runtime.model;
      const model = runtime.model as { forward: typeof forward };
      const ids = text(300, 60);
      session.feedAll(ids.slice(0, 299), () => {});
      session.feed(ids.slice(299));
      const expected = runtime.model.logits(0, 1).slice();
      session.truncate(0);
      session.feedAll(ids.slice(0, 299), () => {});
      let left = 0;
      model.forward = (batch, observer) => {
        forward(batch, observer);
        if (left-- === 0) throw new Error('a pass that fails');
      };
      // the pass itself; then, where something must be computed again, that, at once or after some of it
      for (const passes of runtime.batch.cache.needsSnapshots ? [0, 2, 0, 1] : [0, 0]) {
        left = passes;
        expect(() => session.feed(ids.slice(299))).toThrow('a pass that fails');
        expect(session.ids).toEqual(ids.slice(0, 299));
      }
      model.forward = forward;
      session.feed(ids.slice(299));
      expect(runtime.model.logits(0, 1)).toEqual(expected);
    });
  });

  test('--kv-dir needs sessions that are blocks of tokens: any other family refuses it', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'coli-kv-'));
    onTestFinished(() => rmSync(directory, { recursive: true }));
    const kvDir = join(directory, 'kv');
    const opening = openEngine({ model, ram: TEST_RAM_BYTES, context: CONTEXT, kvDir }).then(engine => engine.close());
    if (pack === 'olmoe' || pack === 'glm-moe-dsa') await expect(opening).resolves.toBeUndefined();
    else {
      await expect(opening).rejects.toMatchObject({
        code: 'KV_DIR_UNSUPPORTED',
        hint: expect.stringMatching(/kv-dir/),
      });
      expect(existsSync(kvDir)).toBe(false);
    }
  });
});
