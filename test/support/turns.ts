/** Turns on a fake engine, and what a client has of them at the end. */

import { expect } from 'vitest';
import { AdmissionQueue } from '../../src/server/admission.ts';
import type { ChatTurn, TurnEvent, TurnRequest } from '../../src/server/turn.ts';
import { createTurnRunner } from '../../src/server/turns.ts';
import { type FakeOptions, fakeEngine } from './fake-engine.ts';

export const TOOLS = [
  { name: 'get', parameters: { type: 'object', properties: { q: { type: 'string' } } } },
  { name: 'put' },
] as const;
export const HERMES = { template: '{{ tools }}<tool_call>', addedTokens: ['<tool_call>'] };
export const THINKS = { template: '{{ tools }}<tool_call></think>', addedTokens: ['<think>', '</think>'] };

export function chat(turn: Partial<ChatTurn> = {}, rest: Partial<TurnRequest> = {}): TurnRequest {
  const prompt: ChatTurn = {
    kind: 'chat',
    messages: [{ role: 'user', content: 'hi' }],
    tools: [],
    toolChoice: 'auto',
    parallelToolCalls: true,
    thinking: null,
    reasoningEffort: null,
    continueFinal: false,
    ...turn,
  };
  return { prompt, client: 'me', ...rest };
}

export const text = (prompt: string | number[], echo = false, rest: Partial<TurnRequest> = {}): TurnRequest => ({
  prompt: { kind: 'text', prompt, echo },
  client: 'me',
  ...rest,
});

export function setUp(options: FakeOptions, queue = { capacity: 1, maxQueue: 0, queueTimeoutMs: 1000 }) {
  const engine = fakeEngine(options);
  const admission = new AdmissionQueue(queue);
  let ms = 0;
  const runner = createTurnRunner({ engine, admission, now: () => (ms += 100) });
  return { engine, admission, runner };
}

export const never = () => new AbortController().signal;

export async function collect(events: AsyncIterable<TurnEvent>): Promise<TurnEvent[]> {
  const all: TurnEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

/** What a client has at the end; call ids are checked apart. */
export async function outcome(options: FakeOptions, request: TurnRequest) {
  const { engine, admission, runner } = setUp(options);
  const events = await collect(runner.run(request, never()));
  expect(admission.counts).toMatchObject({ active: 0, completed: 1 });
  expect(engine.open).toBe(0);
  const end = events.at(-1);
  if (end?.type !== 'end') throw new Error('no end');
  const join = (type: 'text' | 'reasoning') => events.map(event => (event.type === type ? event.text : '')).join('');
  const calls: { name: string; arguments: string }[] = [];
  for (const event of events) {
    if (event.type === 'call') calls.push({ name: event.name, arguments: '' });
    if (event.type === 'arguments') calls[event.index].arguments += event.text;
  }
  return { text: join('text'), reasoning: join('reasoning'), calls, end, events, engine };
}

export const call = (name: string, q: string) =>
  `<tool_call>{"name": "${name}", "arguments": {"q": "${q}"}}</tool_call>`;
