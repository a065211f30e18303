/** Turns on the real engine: what the scripted models of the fixtures cannot be asked through a fake one. */

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import type { Engine } from '../../src/engine/api.ts';
import { openEngine } from '../../src/engine/engine.ts';
import { AdmissionQueue } from '../../src/server/admission.ts';
import type { TurnEvent, TurnRequest } from '../../src/server/turn.ts';
import { createTurnRunner } from '../../src/server/turns.ts';
import { ASSISTANT, writeChain } from '../fixtures/chain.ts';
import { chat } from '../support/turns.ts';

const scratch = mkdtempSync(join(tmpdir(), 'coli-turns-'));
const engines: Engine[] = [];
afterAll(async () => {
  for (const engine of engines) await engine.close();
  rmSync(scratch, { recursive: true });
});

/** A model that says `tokens` after every prompt that ends with `before`; what the tokenizer has no token for are bytes. */
async function runnerOf(name: string, before: string, tokens: readonly string[]) {
  const directory = join(scratch, name);
  writeChain(directory, { chains: [[before, ...tokens]] });
  const engine = await openEngine({
    model: directory,
    ram: 1024 * 2 ** 20,
    threads: 1,
    context: 2048,
    constraints: true,
  });
  engines.push(engine);
  const admission = new AdmissionQueue({ capacity: 1, maxQueue: 4, queueTimeoutMs: 60_000 });
  const runner = createTurnRunner({ engine, admission });
  return async (request: TurnRequest) => {
    const events: TurnEvent[] = [];
    for await (const event of runner.run(request, new AbortController().signal)) events.push(event);
    return events;
  };
}

const textOf = (events: readonly TurnEvent[]) =>
  events.map(event => (event.type === 'text' ? event.text : '')).join('');

test('a call in five tokens, told by a system message, and the same prompt again from what is there', async () => {
  const tokens = ['{"tool_calls": [{"name": "get', '", "arguments": ', '{"q": "', 'Oslo', '"}}]}'];
  const run = await runnerOf('call', ASSISTANT, tokens);
  const request = chat({ tools: [{ name: 'get' }] }, { temperature: 0 });
  const first = await run(request);
  expect(
    first
      .filter(event => event.type === 'arguments')
      .map(event => event.text)
      .join(''),
  ).toBe('{"q": "Oslo"}');
  expect(first.at(-1)).toMatchObject({ finish: 'tool_calls', usage: { cachedTokens: 0, completionTokens: 6 } });
  const again = (await run(request)).at(-1);
  expect(again).toMatchObject({ finish: 'tool_calls', usage: { completionTokens: 6 } });
  if (again?.type !== 'end') throw new Error('no end');
  expect(again.usage.cachedTokens).toBeGreaterThan(0);
});

test('an answer goes on where its beginning ends', async () => {
  const run = await runnerOf('continued', 'g', [' and', ' end']);
  const messages = [
    { role: 'user', content: 'x' },
    { role: 'assistant', content: 'The beginning' },
  ];
  expect(textOf(await run(chat({ messages, continueFinal: true }, { temperature: 0 })))).toBe(' and end');
});

test('a required call has its form on a model that wants to say something else', async () => {
  const run = await runnerOf('forced', ASSISTANT, ['I would rather talk.']);
  const parameters = { type: 'object', properties: { n: { enum: [7] } }, required: ['n'], additionalProperties: false };
  const tools = [{ name: 'get', parameters }];
  const events = await run(chat({ tools, toolChoice: 'required', parallelToolCalls: false }, { temperature: 0 }));
  const json = events.map(event => (event.type === 'arguments' ? event.text : '')).join('');
  expect(JSON.parse(json)).toEqual({ n: 7 });
  expect(events.at(-1)).toMatchObject({ finish: 'tool_calls' });
  expect(textOf(events)).toBe('');
});
