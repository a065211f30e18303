import { expect, test } from 'vitest';
import type { Engine, ScoreRequest } from '../engine/api.ts';
import { evalChoices, parseQuestions } from './choices.ts';

/** A token per character; a character costs what `costs` says, else 1 nat. */
function engineOf(costs: Readonly<Record<string, number>>) {
  const texts: string[] = [];
  const engine = {
    encode: async ({ text }: { text: string }) => [...text].map(character => character.codePointAt(0)!),
    score: async ({ ids, next }: ScoreRequest) => {
      const all = [...ids, next!];
      texts.push(String.fromCodePoint(...all));
      return { nll: Float64Array.from(all.slice(1), id => costs[String.fromCodePoint(id)] ?? 1) };
    },
  } as unknown as Engine;
  return { engine, texts };
}

test('the likeliest choice is the answer, the context costs nothing', async () => {
  const { engine, texts } = engineOf({ x: 100, a: 0.5, b: 0.25 });
  const report = await evalChoices(engine, [
    { ctx: 'xx', choices: ['a', 'b'], gold: 1 },
    { ctx: 'xx', choices: ['a', 'b'], gold: 0 },
  ]);
  expect(report).toMatchObject({ questions: 2, correct: 1, accuracy: 0.5 });
  expect(texts).toEqual(['xx a', 'xx b', 'xx a', 'xx b']);
});

test('spaces: one between context and choice, those of the context go to the choice', async () => {
  const { engine, texts } = engineOf({});
  await evalChoices(engine, [{ ctx: 'q ', choices: ['a', ' b'], gold: 0 }]);
  await evalChoices(engine, [{ ctx: '', choices: ['aa', 'bb'], gold: 0 }]);
  expect(texts).toEqual(['q a', 'q b', 'aa', 'bb']);
});

test('long choices are dearer, unless divided by their bytes', async () => {
  const { engine } = engineOf({ l: 0.5, ' ': 0 });
  const report = await evalChoices(engine, [{ ctx: 'q', choices: ['s', 'lll'], gold: 1 }]);
  expect(report.correct).toBe(0);
  expect(report.normalised.correct).toBe(1);
});

test('lines of a file', () => {
  const good = '{"ctx": "a", "choices": ["b", "c"], "gold": 1, "id": 7}\n\n';
  expect(parseQuestions(good, 'f')).toEqual([{ ctx: 'a', choices: ['b', 'c'], gold: 1 }]);
});

test.each([
  ['{"ctx": "a"', 'not JSON'],
  ['{"ctx": "a", "choices": ["b"], "gold": 0}', 'choices'],
  ['{"ctx": "a", "choices": ["b", "c"], "gold": 2}', 'gold'],
  ['{"ctx": "a", "choices": ["b", ""], "gold": 0}', 'choices.1'],
  ['[]', 'the line'],
])('%s is refused by its line', (line, what) => {
  expect(() => parseQuestions(`{"ctx":"a","choices":["b","c"],"gold":0}\n${line}`, 'task.jsonl')).toThrow(
    expect.objectContaining({ code: 'BAD_TASK', message: expect.stringContaining(`task.jsonl:2: ${what}`) }),
  );
});
