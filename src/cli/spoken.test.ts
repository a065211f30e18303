import { describe, expect, test } from 'vitest';
import { HARMONY_TEMPLATE, HARMONY_TOKENS } from '../../test/fixtures/harmony.ts';
import { type FakeOptions, fakeEngine } from '../../test/support/fake-engine.ts';
import { THINKS } from '../../test/support/turns.ts';
import type { GenerateRequest, Prompt } from '../engine/api.ts';
import { type SpokenEvent, spoken } from './spoken.ts';

const CHAT: Prompt = { messages: [{ role: 'user', content: 'hi' }] };

async function listen(options: FakeOptions, request: Partial<GenerateRequest> = {}) {
  const engine = fakeEngine(options);
  const events: SpokenEvent[] = [];
  const all = spoken(engine, { prompt: CHAT, ...request }, new AbortController().signal);
  for await (const event of all) events.push(event);
  const end = events.at(-1)!;
  if (end.type !== 'end') throw new Error('no end');
  const joined = (type: 'text' | 'reasoning') => events.map(event => (event.type === type ? event.text : '')).join('');
  return { text: joined('text'), reasoning: joined('reasoning'), end, engine, types: events.map(({ type }) => type) };
}

test('a model that reasons: what it thinks and what it says', async () => {
  const { text, reasoning, end } = await listen({ answer: ['<think>', 'plan', '</think>', 'Hi', '!'], text: THINKS });
  expect([text, reasoning]).toEqual(['Hi!', 'plan']);
  expect(end).toMatchObject({ text: 'Hi!', reasoning: 'plan', finishReason: 'stop' });
});

test('a block that the prompt has opened', async () => {
  const { text, reasoning } = await listen({
    answer: ['plan', '</think>', 'Hi'],
    text: THINKS,
    promptEnd: ['<think>'],
  });
  expect([text, reasoning]).toEqual(['Hi', 'plan']);
});

test('channels', async () => {
  const answer = ['<|channel|>', 'analysis', '<|message|>', 'plan', '<|end|>', '<|start|>', 'assistant', '<|channel|>'];
  const rest = ['final', '<|message|>', 'Hi <', '|end|>'];
  const facts = { template: HARMONY_TEMPLATE, addedTokens: HARMONY_TOKENS };
  const options = { answer: [...answer, ...rest], text: facts, promptEnd: ['<|start|>', 'assistant'] };
  const { text, reasoning } = await listen(options);
  expect([text, reasoning]).toEqual(['Hi <|end|>', 'plan']);
});

describe('stop strings', () => {
  test('mean nothing in what is thought, and end what is said', async () => {
    const answer = ['<think>', 'STOP', '</think>', 'a ST', 'OP', ' never'];
    const { text, reasoning, end } = await listen({ answer, text: THINKS }, { stop: ['STOP'] });
    expect([text, reasoning]).toEqual(['a ', 'STOP']);
    expect(end).toMatchObject({ text: 'a ', finishReason: 'stop', stopReason: 'STOP' });
  });

  test('that do not come true are said in the end', async () => {
    const { text, end } = await listen({ answer: ['a ST'], text: THINKS }, { stop: ['STOP'] });
    expect([text, end.text]).toEqual(['a ST', 'a ST']);
  });
});

test.each<[string, FakeOptions['text'], Prompt]>([
  ['a model that does not reason', {}, CHAT],
  ['a text that is continued', THINKS, { text: 'x' }],
])('%s: everything is said', async (_, text, prompt) => {
  const answer = ['<think>', 'a', '</think>'];
  const heard = await listen({ answer, text }, { prompt, stop: ['x'] });
  expect([heard.text, heard.end.text]).toEqual(['<think>a</think>', '<think>a</think>']);
  expect(heard.end).not.toHaveProperty('reasoning');
  expect(heard.engine.requests[0]).toMatchObject({ stop: ['x'] });
});

test('events come in the order of the engine', async () => {
  const { types } = await listen({ answer: ['<think>', 'a', '</think>', 'b'], text: THINKS });
  expect(types).toEqual(['start', 'prefill', 'prefill', 'reasoning', 'text', 'end']);
});
