/** Calls in the syntax of every chat format, written well and badly, through the three APIs. */

import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { type Script, writeScripts } from '../fixtures/scripts.ts';
import { TOOL_FORMATS } from '../fixtures/tool-formats.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';
import { type Answer, readChatReply, readChatStream, readMessageStream, readResponseStream } from '../support/wire.ts';

const directory = fileDirectory();
const servers: Record<string, Served> = {};
const NAMES = Object.keys(TOOL_FORMATS);

const ARGUMENTS = { city: 'Roma', days: 2 };
const OTHER = { city: 'Oslo', days: 3 };

function scriptsOf(name: string): Record<string, string> {
  const { call, join, close } = TOOL_FORMATS[name];
  const one = call('weather', ARGUMENTS);
  return {
    one: `${name === 'json' ? '' : 'Let me look.\n'}${one}`,
    two: join([one, call('weather', OTHER)]),
    // the model stopped before the last closing tag
    unclosed: one.slice(0, -close.length),
    broken: one.slice(0, one.indexOf('Roma') + 2),
    fence: `Like this:\n\`\`\`\n${one}\n\`\`\`\nThat is how.`,
    unknown: call('rocket', { to: 'Luna' }),
    garbage: `${one.slice(0, one.indexOf('weather'))}]]{{ <nonsense>`,
    forgot: `<think>I should look.\n${one}`,
    quoted: `<think>I could write ${one} but I will not.</think>Fine.`,
    prose: 'No tool is needed here.',
    final: 'It is sunny in Roma.',
  };
}

/** A call with the token of a role in the middle of its arguments. */
function marked(call: string): Script {
  const at = call.indexOf('ma');
  return [call.slice(0, at), '<|user|>', call.slice(at)];
}

beforeAll(async () => {
  for (const name of NAMES) {
    const { messages } = TOOL_FORMATS[name];
    const scripts: Record<string, Script> = { ...scriptsOf(name), marker: marked(scriptsOf(name)['one']) };
    writeScripts(path.join(directory, name), { scripts, messages });
  }
  await Promise.all(
    NAMES.map(async name => {
      const args = ['--ctx', '4000', '--slots', '2'];
      servers[name] = await startServe({ model: path.join(directory, name), args });
    }),
  );
});

const PARAMETERS = {
  type: 'object',
  properties: { city: { type: 'string' }, days: { type: 'integer' } },
  required: ['city'],
};
const SWITCH = {
  type: 'object',
  properties: { on: { type: 'boolean' } },
  required: ['on'],
  additionalProperties: false,
};
const tools = [
  { type: 'function', function: { name: 'weather', description: 'Tells the weather.', parameters: PARAMETERS } },
  { type: 'function', function: { name: 'light', parameters: SWITCH } },
];
const claudeTools = tools.map(({ function: { name, parameters } }) => ({ name, input_schema: parameters }));
const responseTools = tools.map(({ function: { name, parameters } }) => ({ type: 'function', name, parameters }));
const user = (script: string) => ({ role: 'user', content: `say ${script}.` });

describe.each(NAMES)('%s', name => {
  const server = () => servers[name];
  const script = (key: string) => scriptsOf(name)[key];

  /** Whole and streamed; both must tell the same. */
  async function ask(key: string, more: object = {}): Promise<Answer> {
    const body = { messages: [user(key)], tools, temperature: 0, ...more };
    const reply = await server().post('/v1/chat/completions', body);
    expect(reply.status, reply.text).toBe(200);
    const whole = readChatReply(reply.body);
    const streamed = readChatStream(await server().stream('/v1/chat/completions', { ...body, stream: true }));
    const seen = ({ content, reasoning, calls, finish }: Answer) => ({
      ...{ content, reasoning, finish },
      calls: calls.map(({ name: called, arguments: args }) => ({ called, args: JSON.parse(args) })),
    });
    expect(seen(streamed)).toEqual(seen(whole));
    return whole;
  }

  const called = ({ calls }: Answer) => calls.map(call => [call.name, JSON.parse(call.arguments)]);

  test('a call comes with id, name and arguments; text before it is kept', async () => {
    const answer = await ask('one');
    expect(called(answer)).toEqual([['weather', ARGUMENTS]]);
    expect([answer.content, answer.finish]).toEqual([name === 'json' ? '' : 'Let me look.', 'tool_calls']);
  });

  test('/apply-template shows the prompt of the chat, with its tools, calls and results', async () => {
    const call = { id: 'c1', type: 'function', function: { name: 'weather', arguments: JSON.stringify(ARGUMENTS) } };
    const history = [
      user('one'),
      { role: 'assistant', tool_calls: [call] },
      { role: 'tool', tool_call_id: 'c1', content: 'say final.' },
    ];
    for (const body of [
      { messages: [user('final')], tools },
      { messages: [user('final')], tools, tool_choice: 'none' },
      { messages: history, tools },
    ]) {
      const { prompt } = (await server().post('/apply-template', body)).body;
      const { tokens } = (await server().post('/tokenize', { content: prompt, add_special: true })).body;
      const reply = await server().post('/v1/chat/completions', { ...body, max_tokens: 1 });
      expect(tokens.length).toBe(reply.body.usage.prompt_tokens);
      expect(prompt.includes('Tells the weather.')).toBe(!('tool_choice' in body));
    }
  });

  test('ids differ within an answer and between answers', async () => {
    const answers = [await ask('two'), await ask('two'), await ask('one')];
    const ids = answers.flatMap(({ calls }) => calls.map(({ id }) => id));
    expect(new Set(ids).size).toBe(5);
    expect(called(answers[0])).toEqual([
      ['weather', ARGUMENTS],
      ['weather', OTHER],
    ]);
  });

  test('the other APIs tell the same call, whole and streamed', async () => {
    const message = { messages: [user('two')], tools: claudeTools, max_tokens: 500 };
    const { body } = await server().post('/v1/messages', message);
    expect(body.stop_reason).toBe('tool_use');
    const uses = body.content.filter((block: { type: string }) => block.type === 'tool_use');
    expect(uses.map((block: { input: object }) => block.input)).toEqual([ARGUMENTS, OTHER]);
    const { blocks, stop } = readMessageStream(await server().stream('/v1/messages', { ...message, stream: true }));
    expect(stop.stop_reason).toBe('tool_use');
    const streamed = blocks.filter(({ type }) => type === 'tool_use');
    expect(streamed.map(({ name: tool, text }) => [tool, JSON.parse(text)])).toEqual([
      ['weather', ARGUMENTS],
      ['weather', OTHER],
    ]);
    const request = { input: 'say one.', tools: responseTools, stream: true };
    const { response, arguments: args } = readResponseStream(await server().stream('/v1/responses', request));
    expect(response.output.at(-1)).toMatchObject({ type: 'function_call', name: 'weather', status: 'completed' });
    expect(JSON.parse(args)).toEqual(ARGUMENTS);
  });

  test('a call whose last closing tag is missing counts; one that is cut inside is text', async () => {
    expect(called(await ask('unclosed'))).toEqual([['weather', ARGUMENTS]]);
    const broken = await ask('broken');
    expect([broken.calls, broken.finish, broken.content]).toEqual([[], 'stop', script('broken')]);
    const cut = await ask('one', { max_tokens: 20 });
    expect([cut.calls, cut.finish]).toEqual([[], 'length']);
    expect(script('one')).toContain(cut.content);
    expect(cut.content.length).toBeGreaterThan(20);
  });

  test('a call in code, of an unknown tool, or in a closed block of reasoning is not made', async () => {
    const fence = await ask('fence');
    expect([fence.calls, fence.content, fence.finish]).toEqual([[], script('fence'), 'stop']);
    const unknown = await ask('unknown');
    expect([unknown.calls, unknown.content, unknown.finish]).toEqual([[], script('unknown'), 'stop']);
    const quoted = await ask('quoted');
    expect([quoted.calls, quoted.content]).toEqual([[], 'Fine.']);
    expect(quoted.reasoning).toContain('weather');
  });

  test('a call behind reasoning that was never closed is made where a tag shows it, and never lost', async () => {
    const answer = await ask('forgot');
    const isShown = name !== 'json';
    expect(called(answer)).toEqual(isShown ? [['weather', ARGUMENTS]] : []);
    const thought = `I should look.${isShown ? '' : `\n${TOOL_FORMATS[name].call('weather', ARGUMENTS)}`}`;
    expect([answer.reasoning, answer.content]).toEqual([thought, '']);
  });

  test('markup that is none is text, and the next turn works', async () => {
    const { content, calls, finish } = await ask('garbage');
    expect([content, calls, finish]).toEqual([script('garbage'), [], 'stop']);
    const next = [user('garbage'), { role: 'assistant', content }, user('one')];
    expect(called(await ask('one', { messages: next }))).toEqual([['weather', ARGUMENTS]]);
  });

  test('stop strings do not cut a call', async () => {
    const answer = await ask('one', { stop: ['Roma', '"', '<|user|>', 'user'] });
    expect(called(answer)).toEqual([['weather', ARGUMENTS]]);
  });

  test('the token of a role inside a call does not cut it', async () => {
    expect(called(await ask('marker'))).toEqual([['weather', ARGUMENTS]]);
  });

  test('the turn after a call: results are read, whatever the API', async () => {
    const { body } = await server().post('/v1/chat/completions', { messages: [user('one')], tools });
    const { message } = body.choices[0];
    const [call] = message.tool_calls;
    const result = { role: 'tool', tool_call_id: call.id, content: 'say final.' };
    expect((await ask('', { messages: [user('one'), message, result] })).content).toBe(script('final'));
    const parts = { ...result, content: [{ type: 'text', text: 'say final.' }] };
    expect((await ask('', { messages: [user('one'), message, parts] })).content).toBe(script('final'));

    const claude = (
      await server().post('/v1/messages', { messages: [user('one')], tools: claudeTools, max_tokens: 500 })
    ).body;
    const use = claude.content.at(-1);
    const history = [
      user('one'),
      { role: 'assistant', content: claude.content },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'say final.' }] },
    ];
    const second = await server().post('/v1/messages', { messages: history, tools: claudeTools, max_tokens: 500 });
    expect(second.body.content).toMatchObject([{ type: 'text', text: script('final') }]);

    const { output } = (await server().post('/v1/responses', { input: 'say one.', tools: responseTools })).body;
    const input = [
      { role: 'user', content: 'say one.' },
      ...output,
      { type: 'function_call_output', call_id: output.at(-1).call_id, output: 'say final.' },
    ];
    const third = await server().post('/v1/responses', { input, tools: responseTools });
    expect(third.body.output.at(-1).content[0].text).toBe(script('final'));
  });

  describe('tool_choice', () => {
    test('none: markup stays text', async () => {
      expect(await ask('one', { tool_choice: 'none' })).toMatchObject({
        calls: [],
        content: script('one'),
        finish: 'stop',
      });
    });

    test('auto on a model that wants none: text', async () => {
      for (const tool_choice of ['auto', null, undefined]) {
        expect(await ask('prose', { tool_choice })).toMatchObject({
          calls: [],
          content: script('prose'),
          finish: 'stop',
        });
      }
    });

    test('a named tool and required, on a model that wants prose: a call whose arguments follow the schema', async () => {
      // this model has no tokens for its tags, so a forced call and reasoning exclude each other
      const still = { enable_thinking: false };
      const named = await ask('prose', {
        ...still,
        tool_choice: { type: 'function', function: { name: 'light' } },
      });
      expect(called(named)).toEqual([['light', { on: expect.any(Boolean) }]]);
      expect(named.finish).toBe('tool_calls');
      const required = await ask('prose', {
        ...still,
        tools: [tools[1]],
        tool_choice: 'required',
        parallel_tool_calls: false,
      });
      expect(called(required)).toEqual([['light', { on: expect.any(Boolean) }]]);
      const claude = { messages: [user('prose')], tools: claudeTools, max_tokens: 500, temperature: 0 };
      const { body } = await server().post('/v1/messages', { ...claude, tool_choice: { type: 'tool', name: 'light' } });
      expect(body.content).toMatchObject([{ type: 'tool_use', name: 'light', input: { on: expect.any(Boolean) } }]);
      const response = { input: 'say prose.', tools: responseTools, temperature: 0, reasoning: { effort: 'none' } };
      const chosen = { ...response, tool_choice: { type: 'function', name: 'light' } };
      expect((await server().post('/v1/responses', chosen)).body.output).toMatchObject([
        { type: 'function_call', name: 'light' },
      ]);
    });

    test('one call at most on a model that wants two', async () => {
      const answer = await ask('two', { parallel_tool_calls: false });
      expect(called(answer)).toEqual([['weather', ARGUMENTS]]);
      expect(answer.finish).toBe('tool_calls');
      const claude = { messages: [user('two')], tools: claudeTools, max_tokens: 500 };
      const choice = { tool_choice: { type: 'auto', disable_parallel_tool_use: true } };
      const { body } = await server().post('/v1/messages', { ...claude, ...choice });
      expect(body.content.filter((block: { type: string }) => block.type === 'tool_use')).toHaveLength(1);
    });
  });
});

describe('what cannot be is refused, naming the field', () => {
  const server = () => servers['hermes'];
  const withTools = { messages: [user('prose')], tools };
  test.each<[string, object, string]>([
    ['required without tools', { messages: [user('prose')], tool_choice: 'required' }, 'tool_choice'],
    [
      'an unknown named tool',
      { ...withTools, tool_choice: { type: 'function', function: { name: 'x' } } },
      'tool_choice',
    ],
    ['an unknown word', { ...withTools, tool_choice: 'always' }, 'tool_choice'],
    ['a tool of another type', { ...withTools, tools: [{ type: 'web_search' }] }, 'tools[0]'],
    ['a tool twice', { ...withTools, tools: [tools[0], tools[0]] }, 'tools[1]'],
    ['a name with spaces', { ...withTools, tools: [{ type: 'function', function: { name: 'a b' } }] }, 'tools[0]'],
    [
      'parameters that are no schema',
      { ...withTools, tools: [{ type: 'function', function: { name: 'a', parameters: 'x' } }] },
      'tools[0]',
    ],
    ['former functions', { messages: [user('prose')], functions: [{ name: 'a' }] }, 'functions'],
  ])('%s', async (_, body, param) => {
    const { status, body: reply } = await server().post('/v1/chat/completions', body);
    expect(status).toBe(400);
    expect(reply.error.param).toContain(param);
  });

  test('tool_choice null without tools is nothing', async () => {
    const body = { messages: [user('prose')], tool_choice: null, tools: null, parallel_tool_calls: null };
    expect((await server().post('/v1/chat/completions', body)).status).toBe(200);
  });

  test.each(['{', '[]', '"x"', 'null', '{"a": }', '\u0000'])(
    'a history with arguments %j: a 400 that names the call',
    async args => {
      const calls = (text: string) => [{ id: 'c1', type: 'function', function: { name: 'weather', arguments: text } }];
      const history = (text: string) => [
        user('one'),
        { role: 'assistant', content: null, tool_calls: calls(text) },
        { role: 'tool', tool_call_id: 'c1', content: 'say final.' },
      ];
      for (let i = 0; i < 2; i++) {
        const { status, body } = await server().post('/v1/chat/completions', { messages: history(args), tools });
        expect(status).toBe(400);
        expect(body.error.param).toContain('messages[1].tool_calls[0]');
      }
      for (const good of ['{}', '', ' ']) {
        expect((await server().post('/v1/chat/completions', { messages: history(good), tools })).status).toBe(200);
      }
      const input = [
        { type: 'function_call', call_id: 'c1', name: 'weather', arguments: args },
        { type: 'function_call_output', call_id: 'c1', output: 'x' },
      ];
      const response = await server().post('/v1/responses', { input, tools: responseTools });
      expect(response.status).toBe(400);
      expect(response.body.error.param).toContain('input[0]');
    },
  );
});
