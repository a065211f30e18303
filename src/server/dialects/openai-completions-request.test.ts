import { expect, test } from 'vitest';
import { RequestError } from '../../common/errors.ts';
import type { TurnRequest } from '../turn.ts';
import { completionTurns, MAX_PROMPTS, parseCompletion } from './openai-completions-request.ts';

const turns = (body: object): TurnRequest[] => completionTurns(parseCompletion({ prompt: 'a', ...body }), 'client');

function mistake(body: object): { code: string; param: unknown } {
  try {
    turns(body);
  } catch (error) {
    if (error instanceof RequestError) return { code: error.code, param: error.details.parameter };
    throw error;
  }
  throw new Error('the body was taken');
}

test('a prompt is text or ids, one or several', () => {
  const prompts = (prompt: unknown) => turns({ prompt }).map(turn => (turn.prompt as { prompt: unknown }).prompt);
  expect(turns({})).toEqual([{ client: 'client', maxTokens: 16, prompt: { kind: 'text', prompt: 'a', echo: false } }]);
  expect(prompts('')).toEqual(['']);
  expect(prompts([5, 6])).toEqual([[5, 6]]);
  expect(prompts(['a'])).toEqual(['a']);
  expect(prompts(['a', 'b'])).toEqual(['a', 'b']);
  expect(prompts([[1], [2, 3]])).toEqual([[1], [2, 3]]);
});

test('any other prompt is refused', () => {
  const wrong = [null, 1, {}, true, [], [[]], ['a', 1], [1, 'a'], [[1], 2], [[1], 'a'], [[1], []], [null]];
  for (const prompt of [...wrong, Array(MAX_PROMPTS + 1).fill('a')]) {
    expect(mistake({ prompt }), JSON.stringify(prompt)).toEqual({ code: 'BAD_PARAMETER', param: 'prompt' });
  }
  expect(mistake({ prompt: undefined })).toEqual({ code: 'BAD_PARAMETER', param: 'prompt' });
});

test('a wrong token id is named by its place', () => {
  expect(mistake({ prompt: [-1] })).toEqual({ code: 'BAD_PARAMETER', param: 'prompt[0]' });
  expect(mistake({ prompt: [1, 2, 1.5] })).toEqual({ code: 'BAD_PARAMETER', param: 'prompt[2]' });
  expect(mistake({ prompt: [[1], [2, 'a']] })).toEqual({ code: 'BAD_PARAMETER', param: 'prompt[1][1]' });
});

test('a million token ids are read at once', () => {
  const ids = Array.from({ length: 1_000_000 }, (_, i) => i % 100);
  expect(turns({ prompt: ids })[0].prompt).toEqual({ kind: 'text', prompt: ids, echo: false });
});

test('fields of every member', () => {
  const body = { prompt: ['a', 'b'], echo: true, max_tokens: 3, seed: 1, stop: ['x'], regex: 'a*' };
  const form = { format: { kind: 'regex', pattern: 'a*' }, formatField: 'regex' };
  const shared = { client: 'client', maxTokens: 3, seed: 1, stop: ['x'], ...form };
  expect(turns(body)).toEqual([
    { ...shared, prompt: { kind: 'text', prompt: 'a', echo: true } },
    { ...shared, prompt: { kind: 'text', prompt: 'b', echo: true } },
  ]);
  expect(turns({ logprobs: 3, max_tokens: 0 })[0]).toMatchObject({ logprobs: 3, maxTokens: 0 });
});

test('several prompts may ask for a bounded number of tokens', () => {
  expect(turns({ max_tokens: 1e12 })).toHaveLength(1);
  expect(turns({ prompt: ['a', 'b'], max_tokens: 32_768 })).toHaveLength(2);
  expect(mistake({ prompt: ['a', 'b'], max_tokens: 32_769 })).toEqual({ code: 'BAD_PARAMETER', param: 'max_tokens' });
});

test('what this route does not do is refused by name', () => {
  for (const field of ['messages', 'tools', 'suffix', 'best_of', 'top_logprobs', 'enable_thinking']) {
    expect(mistake({ [field]: [{}] })).toEqual({ code: 'UNSUPPORTED_PARAMETER', param: field });
  }
  expect(mistake({ echo: true, logprobs: 0 })).toEqual({ code: 'UNSUPPORTED_PARAMETER', param: 'logprobs' });
  expect(mistake({ logprobs: true })).toEqual({ code: 'BAD_PARAMETER', param: 'logprobs' });
  expect(mistake({ logprobs: 21 })).toEqual({ code: 'BAD_PARAMETER', param: 'logprobs' });
  expect(mistake({ echo: 1 })).toEqual({ code: 'BAD_PARAMETER', param: 'echo' });
});
