/** Models that reason aloud, and models that do not: where the reasoning goes, and what happens to it in the next turn. */

import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { writeChain } from '../fixtures/chain.ts';
import { MESSAGES, writeScripts } from '../fixtures/scripts.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';
import { readChatReply, readChatStream, readMessageStream } from '../support/wire.ts';

const directory = fileDirectory();
let plain: Served;
/** The model opens the block by itself; the template opens it, or closes it at once. */
let thinker: Served;
let opened: Served;

const THOUGHT = 'one two three four five six seven eight nine ten eleven twelve thirteen';

beforeAll(async () => {
  const at = (name: string) => path.join(directory, name);
  const scripts = {
    long: ['<think>\n', ...THOUGHT.split(/(?= )/), '\n</think>\n\n', 'Done.'],
    tags: ['Use ', '<b>', ' or ', '</think >', ' in HTML.'],
  };
  const history =
    '{%- for message in messages -%}<|{{ message.role }}|>' +
    '{%- if message.reasoning_content -%}<think>{{ message.reasoning_content }}</think>{%- endif -%}' +
    '{{ message.content }}<|end|>{%- endfor -%}';
  writeScripts(at('plain'), { scripts: { hi: 'Just an answer.', tags: scripts.tags } });
  writeScripts(at('thinker'), { scripts, messages: history });
  writeChain(at('opened'), {
    chains: [['<think>', ...THOUGHT.split(/(?= )/), '</think>', 'Done.']],
    tags: ['<think>', '</think>'],
    chatTemplate: `${MESSAGES}<|assistant|><think>{%- if enable_thinking is defined and not enable_thinking -%}</think>{%- endif -%}`,
  });
  [plain, thinker, opened] = await Promise.all(
    ['plain', 'thinker', 'opened'].map(name => startServe({ model: at(name), args: ['--ctx', '1000'] })),
  );
});

const say = (name: string, more: object = {}) => ({ messages: [{ role: 'user', content: `say ${name}.` }], ...more });
const ask = async (server: Served, body: object) => {
  const { status, text, body: reply } = await server.post('/v1/chat/completions', body);
  expect(status, text).toBe(200);
  return readChatReply(reply);
};

describe('a model without think tags', () => {
  test.each([
    {},
    { enable_thinking: true },
    { enable_thinking: false },
    { chat_template_kwargs: { enable_thinking: true } },
    { reasoning_effort: 'high' },
  ])('answers in content with %o', async more => {
    expect(await ask(plain, say('hi', more))).toMatchObject({
      content: 'Just an answer.',
      reasoning: '',
      finish: 'stop',
    });
  });

  test('so it does on the other APIs', async () => {
    const thinking = { type: 'enabled', budget_tokens: 1024 };
    const { body } = await plain.post('/v1/messages', say('hi', { max_tokens: 50, thinking }));
    expect(body.content).toEqual([{ type: 'text', text: 'Just an answer.', citations: null }]);
    const response = await plain.post('/v1/responses', { input: 'say hi.', reasoning: { effort: 'high' } });
    expect(response.body.output).toMatchObject([{ type: 'message', content: [{ text: 'Just an answer.' }] }]);
  });

  test('tags in its text are text', async () => {
    expect((await ask(plain, say('tags'))).content).toBe('Use <b> or </think > in HTML.');
    expect((await ask(thinker, say('tags'))).content).toBe('Use <b> or </think > in HTML.');
  });
});

describe.each(['thinker', 'opened'])('%s: fewer tokens than the reasoning needs', which => {
  const server = () => (which === 'thinker' ? thinker : opened);

  test('content is empty, the reasoning that is there is given, finish is length', async () => {
    const answer = await ask(server(), say('long', { max_tokens: 6 }));
    expect(answer).toMatchObject({ content: '', finish: 'length' });
    expect(answer.reasoning.length).toBeGreaterThan(10);
    expect(THOUGHT.startsWith(answer.reasoning)).toBe(true);
    expect(answer.usage).toMatchObject({ completion_tokens: 6, completion_tokens_details: { reasoning_tokens: 6 } });
    const streamed = readChatStream(
      await server().stream('/v1/chat/completions', say('long', { max_tokens: 6, stream: true })),
    );
    expect(streamed).toMatchObject({ content: '', reasoning: answer.reasoning, finish: 'length' });
  });

  test('the other APIs say so too', async () => {
    const thinking = { type: 'adaptive' };
    const { body } = await server().post('/v1/messages', say('long', { max_tokens: 6, thinking }));
    expect(body).toMatchObject({ stop_reason: 'max_tokens', content: [{ type: 'thinking' }] });
    expect(body.usage).toMatchObject({ output_tokens: 6, output_tokens_details: { thinking_tokens: 6 } });
    const response = (await server().post('/v1/responses', { input: 'say long.', max_output_tokens: 6 })).body;
    expect(response).toMatchObject({ status: 'incomplete', output: [{ type: 'reasoning', status: 'incomplete' }] });
  });

  test('enough tokens: both, and the count of either', async () => {
    const answer = await ask(server(), say('long'));
    expect(answer).toMatchObject({ content: 'Done.', reasoning: THOUGHT, finish: 'stop' });
    const { completion_tokens: all, completion_tokens_details: details } = answer.usage!;
    expect(details.reasoning_tokens).toBeGreaterThanOrEqual(13);
    expect(all - details.reasoning_tokens).toBeGreaterThanOrEqual(1);
  });
});

describe('thinking switched off and on', () => {
  test('off: the template closes the block, and nothing is reasoning', async () => {
    for (const more of [
      { enable_thinking: false },
      { reasoning_effort: 'none' },
      { chat_template_kwargs: { thinking: false } },
    ]) {
      expect(await ask(opened, say('long', more))).toMatchObject({ reasoning: '', content: 'Done.' });
    }
    const off = await opened.post('/v1/messages', say('long', { max_tokens: 50 }));
    expect(off.body.content).toMatchObject([{ type: 'text', text: 'Done.' }]);
  });

  test('contradictions are refused', async () => {
    const { status, body } = await opened.post(
      '/v1/chat/completions',
      say('long', { enable_thinking: true, reasoning_effort: 'none' }),
    );
    expect(status).toBe(400);
    expect(body.error.message).toMatch(/reasoning_effort|enable_thinking/);
  });

  test('display omitted: the block comes without its text', async () => {
    const thinking = { type: 'adaptive', display: 'omitted' };
    const events = await thinker.stream('/v1/messages', say('long', { max_tokens: 50, thinking, stream: true }));
    expect(readMessageStream(events).blocks).toEqual([
      { type: 'thinking', text: '' },
      { type: 'text', text: 'Done.' },
    ]);
  });
});

describe("a history whose last message is the assistant's", () => {
  const before = { role: 'user', content: 'say long.' };
  const empties = [{ content: '' }, { content: null }, {}, { content: [{ type: 'text', text: '' }] }];

  test.each([true, false, null])('an empty one is dropped, thinking %s; the next turn works', async enable_thinking => {
    for (const empty of empties) {
      const messages = [before, { role: 'assistant', ...empty }];
      const answer = await ask(opened, { messages, enable_thinking });
      const expected = { content: 'Done.', reasoning: enable_thinking === false ? '' : THOUGHT };
      expect(answer).toMatchObject(expected);
      expect(await ask(opened, { messages: [...messages, before], enable_thinking })).toMatchObject(expected);
    }
  });

  test('the other APIs drop it as well', async () => {
    const messages = [before, { role: 'assistant', content: '' }];
    expect((await opened.post('/v1/messages', { messages, max_tokens: 50 })).body.content[0].text).toBe('Done.');
    const thinking = { type: 'enabled', budget_tokens: 20 };
    const thought = await opened.post('/v1/messages', { messages, max_tokens: 50, thinking });
    expect(thought.status).toBe(200);
    expect(thought.body.content.at(-1).text).toBe('Done.');
  });

  test('half an answer is continued, with thinking on and off', async () => {
    // the last character leads on: `x` is followed by the end of text
    for (const enable_thinking of [true, false, undefined]) {
      const messages = [before, { role: 'assistant', content: 'The answer is x' }];
      const { status, body } = await opened.post('/v1/chat/completions', { messages, enable_thinking, max_tokens: 5 });
      expect(status).toBe(200);
      expect(body.usage.completion_tokens).toBe(1);
      expect(body.choices[0].finish_reason).toBe('stop');
    }
  });
});

describe('three turns as coding clients send them', () => {
  test.each([
    ['without the reasoning', false],
    ['with the reasoning', true],
  ])('%s: never an empty answer', async (_, keep) => {
    const system = { role: 'system', content: 'Act as an expert software developer.' };
    const messages: object[] = [system];
    for (let turn = 0; turn < 3; turn++) {
      messages.push({ role: 'user', content: 'say long.' });
      const body = { model: 'thinker', messages, stream: true, temperature: 0 };
      const answer = readChatStream(await thinker.stream('/v1/chat/completions', body));
      expect(answer).toMatchObject({ content: 'Done.', reasoning: THOUGHT, finish: 'stop' });
      const reasoning = keep ? { reasoning_content: answer.reasoning } : {};
      messages.push({ role: 'assistant', content: answer.content, ...reasoning });
    }
    const { body } = await thinker.post('/apply-template', { messages: [...messages, { role: 'user', content: 'x' }] });
    expect(body.prompt.split('<think>').length - 1).toBe(keep ? 3 : 0);
  });
});
