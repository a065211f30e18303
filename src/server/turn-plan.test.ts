import { expect, test } from 'vitest';
import { formatNamed } from '../chat/formats.ts';
import type { RequestError } from '../common/errors.ts';
import type { ChatTurn, TurnRequest } from './turn.ts';
import { planTurn } from './turn-plan.ts';

const chat: ChatTurn = {
  kind: 'chat',
  messages: [{ role: 'user', content: 'Hi' }],
  tools: [{ name: 'weather' }],
  toolChoice: 'required',
  parallelToolCalls: true,
  thinking: null,
  reasoningEffort: null,
  continueFinal: false,
};

function conflict(request: Omit<TurnRequest, 'client'>): [unknown, string] {
  try {
    const chat = { stopTokens: [], thinking: { variable: null } };
    planTurn({ ...request, client: 'me' }, formatNamed('hermes', false), chat);
  } catch (error) {
    const { code, details, message, hint } = error as RequestError;
    expect(code).toBe('FORMAT_CONFLICT');
    return [details.parameter, `${message}; ${hint}`];
  }
  throw new Error('the turn was planned');
}

test('a conflict about the form of an answer names the field that the client sent', () => {
  const form = { format: { kind: 'json_object' } as const, formatField: 'output_config.format' };
  const [field, text] = conflict({ prompt: chat, ...form });
  expect(field).toBe('tool_choice');
  expect(text).toMatch(/that output_config\.format asks for; leave out tool_choice or output_config\.format$/);
  const begun: ChatTurn = { ...chat, tools: [], toolChoice: 'none', continueFinal: true };
  expect(conflict({ prompt: begun, ...form })[0]).toBe('output_config.format');
});
