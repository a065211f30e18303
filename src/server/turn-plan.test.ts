import { expect, test } from 'vitest';
import { formatNamed } from '../chat/formats.ts';
import type { RequestError } from '../common/errors.ts';
import { deepseekV3 } from '../models/deepseek-v3.ts';
import { glmMoeDsa } from '../models/glm-moe-dsa.ts';
import { gptOss } from '../models/gpt-oss.ts';
import { minimaxM2 } from '../models/minimax-m2.ts';
import { qwen3Moe } from '../models/qwen3-moe.ts';
import type { ChatTurn, TurnRequest } from './turn.ts';
import { chatPrompt, planTurn } from './turn-plan.ts';

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

test.each([
  [qwen3Moe, { thinking: false }, { enable_thinking: false }],
  [qwen3Moe, { thinking: null, reasoningEffort: 'xhigh' }, { reasoning_effort: 'xhigh' }],
  [deepseekV3, { thinking: true }, { enable_thinking: true, thinking: true }],
  [minimaxM2, { thinking: false }, { enable_thinking: false }],
  [gptOss, { thinking: false }, { enable_thinking: false, reasoning_effort: 'low' }],
  [gptOss, { thinking: false, reasoningEffort: 'medium' }, { enable_thinking: false, reasoning_effort: 'medium' }],
  [gptOss, { thinking: null, reasoningEffort: 'max' }, { reasoning_effort: 'high' }],
  [gptOss, { thinking: null, reasoningEffort: 'toString' }, { reasoning_effort: 'toString' }],
  [glmMoeDsa, { thinking: true, reasoningEffort: 'medium' }, { enable_thinking: true, reasoning_effort: 'high' }],
])('what $0.modelType is told for $1', (family, turn, variables) => {
  const prompt = chatPrompt({ ...chat, ...turn }, formatNamed('hermes', true), family.chat);
  expect(prompt).toMatchObject({ variables });
  expect(Object.keys((prompt as { variables: object }).variables)).toHaveLength(Object.keys(variables).length);
});

test('tools that the template would leave out are refused where no description of them would do', () => {
  const format = { ...formatNamed('harmony', true), templateTakesTools: null };
  const plan = (toolChoice: ChatTurn['toolChoice']) =>
    planTurn({ prompt: { ...chat, toolChoice }, client: 'me' }, format, gptOss.chat);
  expect(() => plan('auto')).toThrow(
    expect.objectContaining({ code: 'TOOLS_UNSUPPORTED', details: { parameter: 'tools' } }),
  );
  expect(plan('none').prompt).toMatchObject({ messages: chat.messages });
});

test('the markers of a format are asked for where its parser has something to find', () => {
  const plain: ChatTurn = { ...chat, tools: [], toolChoice: 'auto' };
  const markers = (turn: ChatTurn, reasons: boolean) =>
    planTurn({ prompt: turn, client: 'me' }, formatNamed('hermes', reasons), qwen3Moe.chat).engineRequest.markers;
  expect(markers(plain, false)).toBeUndefined();
  expect(markers(plain, true)).toEqual(['<tool_call>', '</tool_call>', '<think>', '</think>']);
  expect(markers(chat, false)).toEqual(['<tool_call>', '</tool_call>']);
});

test('reasoning of earlier messages, for a template that reads `thinking`', () => {
  const call = [{ id: 'c', type: 'function', function: { name: 'weather', arguments: {} } }];
  const turn = (content: string | null) => ({
    ...chat,
    messages: [
      { role: 'assistant', content, reasoning_content: 'plan', tool_calls: call },
      { role: 'assistant', content: 'x' },
    ],
  });
  const format = { ...formatNamed('harmony', true), readsThinking: true };
  const made = (content: string | null, chosen = format) =>
    (chatPrompt(turn(content), chosen, gptOss.chat) as { messages: unknown[] }).messages;
  expect(made(null)).toMatchObject([{ content: null, thinking: 'plan' }, { content: 'x' }]);
  expect(made('I look.')).toMatchObject([{ content: '', thinking: 'plan\n\nI look.' }, { content: 'x' }]);
  expect(made('I look.', formatNamed('harmony', true) as typeof format)).toEqual(turn('I look.').messages);
});
