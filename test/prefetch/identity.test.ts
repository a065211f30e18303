/** What is read early cannot show in a text: families with and without an expert for all tokens, conversations side by side, failing reads. */

import { describe, expect, test } from 'vitest';
import type { EngineOptions } from '../../src/engine/api.ts';
import type { RuntimeHooks } from '../../src/engine/runtime.ts';
import { readReference } from '../../src/eval/reference.ts';
import { packDirectory, withRuntime } from '../support/packs.ts';
import { type Asked, Together } from '../support/together.ts';

/** 3 layers of 16 experts. */
const QUARTER = 12;
const MODES = ['off', 'auto', 'on'] as const;

/** So few that the next layer is guessed for all of them at once. */
function requests(ids: readonly number[]): Asked[] {
  return [9, 24, 5].map((length, i) => ({
    ids: ids.slice(i, i + length),
    temperature: i,
    topP: 0.95,
    seed: i,
    maxTokens: 24,
    ignoreEos: true,
  }));
}

function together<T>(options: EngineOptions, use: (all: Together) => T, hooks: RuntimeHooks = {}): Promise<T> {
  const base = { context: 128, threads: 1, slots: 3 };
  return withRuntime({ ...base, ...options }, runtime => use(new Together(runtime, options.model)), hooks);
}

const tokens = (answers: readonly { tokenIds: readonly number[] }[]) =>
  answers.map(({ tokenIds }) => tokenIds.join(' '));

describe.each(['olmoe', 'gpt-oss-mxfp4', 'qwen36', 'glm-moe-dsa'])('%s', pack => {
  const model = packDirectory(pack);
  const asked = requests(readReference(model, 3).inputIds);

  test('the same tokens in all modes, alone and together', async () => {
    const expected = await together({ model }, all => tokens(asked.map(one => all.all([one])[0])));
    for (const prefetch of MODES) {
      await together({ model, expertSlots: QUARTER, prefetch }, all => {
        expect(tokens(all.all(asked)), prefetch).toEqual(expected);
        expect(tokens(asked.slice(0, 1).map(one => all.all([one])[0])), prefetch).toEqual(expected.slice(0, 1));
        const { guessable, guessed, prefetched, aheadHits, wasted, hits, misses, requests } =
          all.runtime.store.counters;
        expect([hits + misses, aheadHits + wasted]).toEqual([requests, prefetched]);
        if (prefetch === 'off') expect([guessable, prefetched]).toEqual([0, 0]);
        else expect(guessed).toBeGreaterThan(guessable / 3);
      });
    }
  });
});

test('the same tokens when reads fail, ahead or not, and nobody is told', async () => {
  const model = packDirectory('olmoe');
  const asked = requests(readReference(model, 3).inputIds);
  const expected = await together({ model }, all => tokens(asked.map(one => all.all([one])[0])));
  for (const nth of [70, 95, 120, 145]) {
    const answers = await together({ model, expertSlots: QUARTER, prefetch: 'on' }, all => all.all(asked), {
      faults: { nth, kind: 'eio' },
    });
    expect(tokens(answers), `read ${nth}`).toEqual(expected);
  }
});

test('one that is given up in the middle takes nothing from the others', async () => {
  const model = packDirectory('qwen36');
  const asked = requests(readReference(model, 3).inputIds);
  const expected = await together({ model }, all => tokens(asked.map(one => all.all([one])[0])));
  for (const prefetch of MODES) {
    await together({ model, expertSlots: QUARTER, prefetch }, all => {
      let told = 0;
      const answers = asked.map((one, i) => all.add(one, event => i === 1 && event.type === 'token' && ++told === 8));
      all.finish();
      expect(answers[1]().finishReason).toBe('cancelled');
      expect(tokens([answers[0](), answers[2]()])).toEqual([expected[0], expected[2]]);
      const { prefetched, aheadHits, wasted } = all.runtime.store.counters;
      expect(aheadHits + wasted).toBe(prefetched);
      expect(tokens(all.all(asked))).toEqual(expected);
    });
  }
});
