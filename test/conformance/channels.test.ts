/** Models that answer in channels (gpt-oss): reasoning, preambles, calls and answers through the three APIs. */

import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AdmissionQueue } from '../../src/server/admission.ts';
import { DIALECTS } from '../../src/server/dialects.ts';
import { createTurnRunner } from '../../src/server/turns.ts';
import { HARMONY_TEMPLATE, HARMONY_TOKENS, writeHarmony } from '../fixtures/harmony.ts';
import { fakeEngine } from '../support/fake-engine.ts';
import { requestJson, requestStream } from '../support/http.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';
import { startTurnServer, type TurnServer } from '../support/turn-server.ts';
import { type Answer, readChatReply, readChatStream, readMessageStream, readResponseStream } from '../support/wire.ts';

const SWITCH = {
  type: 'object',
  properties: { on: { type: 'boolean' } },
  required: ['on'],
  additionalProperties: false,
};
const tools = [{ type: 'function', function: { name: 'light', description: 'Switches it.', parameters: SWITCH } }];
const claudeTools = [{ name: 'light', input_schema: SWITCH }];
const responseTools = [{ type: 'function', name: 'light', parameters: SWITCH }];
const messages = [{ role: 'user', content: 'Light, please.' }];
const called = ({ calls }: Answer) => calls.map(call => [call.name, JSON.parse(call.arguments)]);

describe('an answer of five messages', () => {
  const answer = [
    ...['<|channel|>', 'analysis', '<|message|>', 'They want ', 'light.', '<|end|>', '<|start|>', 'assistant'],
    ...['<|channel|>', 'commentary', '<|message|>', 'A moment.', '<|end|>', '<|start|>', 'assistant'],
    ...['<|channel|>', 'analysis', '<|message|>', 'Two of them.', '<|end|>', '<|start|>', 'assistant'],
    ...[
      '<|channel|>',
      'commentary to=',
      'functions.light ',
      '<|constrain|>',
      'json',
      '<|message|>',
      '{"on": tr',
      'ue}',
    ],
    ...['<|call|>', '<|start|>', 'assistant to=functions.light', '<|channel|>', 'commentary json', '<|message|>'],
    ...['{"on": false}', '<|call|>'],
  ];
  const EXPECTED = [
    ['light', { on: true }],
    ['light', { on: false }],
  ];
  let server: TurnServer;

  beforeAll(async () => {
    const text = { template: HARMONY_TEMPLATE, addedTokens: HARMONY_TOKENS };
    const engine = fakeEngine({ answer, text, promptEnd: ['<|start|>', 'assistant'] });
    const admission = new AdmissionQueue({ capacity: 1, maxQueue: 9, queueTimeoutMs: 9000 });
    const runner = createTurnRunner({ engine, admission });
    server = await startTurnServer(DIALECTS);
    server.script = (request, signal) => runner.run(request, signal);
  });
  afterAll(() => server.close());

  test('OpenAI: reasoning, content and calls, whole and streamed', async () => {
    const body = { messages, tools };
    const whole = readChatReply(await requestJson(server.url, '/v1/chat/completions', body));
    expect(called(whole)).toEqual(EXPECTED);
    expect(whole).toMatchObject({
      reasoning: 'They want light.Two of them.',
      content: 'A moment.',
      finish: 'tool_calls',
    });
    const streamed = readChatStream(await requestStream(server.url, '/v1/chat/completions', body));
    expect(called(streamed)).toEqual(EXPECTED);
    const { reasoning, content, finish } = whole;
    expect(streamed).toMatchObject({ reasoning, content, finish });
    expect(whole.usage).toMatchObject({ completion_tokens: answer.length });
    const counted = whole.usage!.completion_tokens_details.reasoning_tokens;
    expect(counted).toBeGreaterThanOrEqual(3);
    expect(counted).toBeLessThan(10);
  });

  test('Anthropic: a block for each', async () => {
    const body = { messages, tools: claudeTools, max_tokens: 99, thinking: { type: 'adaptive' } };
    const { content, stop_reason } = await requestJson(server.url, '/v1/messages', body);
    expect(stop_reason).toBe('tool_use');
    expect(content).toMatchObject([
      { type: 'thinking', thinking: 'They want light.' },
      { type: 'text', text: 'A moment.' },
      { type: 'thinking', thinking: 'Two of them.' },
      { type: 'tool_use', name: 'light', input: { on: true } },
      { type: 'tool_use', name: 'light', input: { on: false } },
    ]);
    const { blocks, stop } = readMessageStream(await requestStream(server.url, '/v1/messages', body));
    expect([blocks.map(({ type }) => type), stop.stop_reason]).toEqual([
      ['thinking', 'text', 'thinking', 'tool_use', 'tool_use'],
      'tool_use',
    ]);
  });

  test('Responses: an item for each', async () => {
    const body = { input: 'Light, please.', tools: responseTools };
    const { output } = await requestJson(server.url, '/v1/responses', body);
    const types = ['reasoning', 'message', 'reasoning', 'function_call', 'function_call'];
    expect(output.map(({ type }: { type: string }) => type)).toEqual(types);
    const { response } = readResponseStream(await requestStream(server.url, '/v1/responses', body));
    expect(response.output.map(({ type }: { type: string }) => type)).toEqual(types);
  });
});

describe('real tokens', () => {
  const directory = fileDirectory();
  let caller: Served;
  let thinker: Served;

  beforeAll(async () => {
    const at = (name: string) => path.join(directory, name);
    const call = ['commentary', ' to=functions', '.light ', '<|constrain|>', 'json', '<|message|>', '{"on": ', 'true}'];
    writeHarmony(at('caller'), ['<|channel|>', ...call, '<|call|>']);
    writeHarmony(at('thinker'), ['<|channel|>', 'analysis', '<|message|>', 'Let ', 'me see.', '<|end|>']);
    [caller, thinker] = await Promise.all(
      ['caller', 'thinker'].map(name => startServe({ model: at(name), args: ['--ctx', '2000'] })),
    );
  });

  const ask = async (server: Served, more: object = {}) => {
    const body = { messages, temperature: 0, ...more };
    const { status, text, body: reply } = await server.post('/v1/chat/completions', body);
    expect(status, text).toBe(200);
    const whole = readChatReply(reply);
    const streamed = readChatStream(await server.stream('/v1/chat/completions', { ...body, stream: true }));
    expect({ ...streamed, calls: called(streamed) }).toMatchObject({
      content: whole.content,
      reasoning: whole.reasoning,
      calls: called(whole),
      finish: whole.finish,
    });
    return whole;
  };

  test('special tokens are seen: a call', async () => {
    const answer = await ask(caller, { tools });
    expect([called(answer), answer.content, answer.finish]).toEqual([[['light', { on: true }]], '', 'tool_calls']);
    const { body } = await caller.post('/v1/messages', { messages, tools: claudeTools, max_tokens: 99 });
    expect(body.content).toMatchObject([{ type: 'tool_use', name: 'light', input: { on: true } }]);
    const response = await caller.post('/v1/responses', { input: 'x', tools: responseTools });
    expect(response.body.output).toMatchObject([{ type: 'function_call', name: 'light', arguments: '{"on": true}' }]);
  });

  test('without tools the same answer is text, as it was written', async () => {
    const written = '<|channel|>commentary to=functions.light <|constrain|>json<|message|>{"on": true}';
    expect(await ask(caller)).toMatchObject({ content: written, calls: [], finish: 'stop' });
    expect(await ask(caller, { tools, tool_choice: 'none' })).toMatchObject({ content: written, calls: [] });
  });

  test('reasoning alone', async () => {
    expect(await ask(thinker)).toMatchObject({ content: '', reasoning: 'Let me see.', finish: 'stop' });
    expect(await ask(thinker, { max_tokens: 4 })).toMatchObject({ content: '', reasoning: 'Let ', finish: 'length' });
  });

  test('a required call comes behind the reasoning, in the tokens of the channels', async () => {
    for (const tool_choice of ['required', { type: 'function', function: { name: 'light' } }]) {
      const answer = await ask(thinker, { tools, tool_choice });
      expect(called(answer)).toEqual([['light', { on: expect.any(Boolean) }]]);
      expect([answer.reasoning, answer.content, answer.finish]).toEqual(['Let me see.', '', 'tool_calls']);
    }
  });

  test('a form holds in the final message', async () => {
    const response_format = { type: 'json_schema', json_schema: { name: 'x', schema: SWITCH } };
    for (const more of [{}, { enable_thinking: false }]) {
      const answer = await ask(thinker, { response_format, ...more });
      expect(JSON.parse(answer.content)).toEqual({ on: expect.any(Boolean) });
      expect([answer.reasoning, answer.finish]).toEqual(['Let me see.', 'stop']);
    }
  });

  test('a form that a client writes cannot let a special token in', async () => {
    const answer = await ask(thinker, { response_format: { type: 'json_object' }, max_tokens: 60 });
    expect(answer.content).not.toMatch(/<\|/);
  });

  test('the effort is told to the template', async () => {
    const prompt = async (more: object) => {
      const { text } = await thinker.post('/apply-template', { messages, ...more });
      return /Reasoning: (\w+)/.exec(text)?.[1];
    };
    expect(await prompt({})).toBe('medium');
    expect(await prompt({ reasoning_effort: 'high' })).toBe('high');
  });

  test('an answer whose beginning is given goes on in the final channel', async () => {
    const given = [...messages, { role: 'assistant', content: 'Part' }];
    const { text } = await thinker.post('/apply-template', { messages: given });
    expect(JSON.parse(text).prompt).toMatch(/<\|start\|>assistant<\|channel\|>final<\|message\|>Part$/);
    expect(await ask(thinker, { messages: given })).toMatchObject({ reasoning: '', finish: 'stop' });
    const refused = await thinker.post('/v1/chat/completions', {
      messages: given,
      response_format: { type: 'json_object' },
    });
    expect(refused.status).toBe(400);
  });
});
