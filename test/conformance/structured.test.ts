/** Answers held to a form, on a model that wants to write prose instead. */

import path from 'node:path';
import { Ajv } from 'ajv';
import { beforeAll, describe, expect, test } from 'vitest';
import { MESSAGES, writeScripts } from '../fixtures/scripts.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';
import { readChatReply, readChatStream } from '../support/wire.ts';

const directory = fileDirectory();
let prose: Served;
let thinker: Served;

beforeAll(async () => {
  const at = (name: string) => path.join(directory, name);
  writeScripts(at('prose'), { scripts: { prose: 'Once upon a time there was a model.' } });
  writeScripts(at('thinker'), {
    scripts: { prose: ['<think>', 'I would rather chat.', '</think>', 'Well then.'] },
    tags: ['<think>', '</think>'],
    messages: MESSAGES,
    opening: '{%- if enable_thinking is defined and not enable_thinking -%}<think></think>{%- endif -%}',
  });
  [prose, thinker] = await Promise.all(
    ['prose', 'thinker'].map(name => startServe({ model: at(name), args: ['--ctx', '2000', '--slots', '4'] })),
  );
});

const messages = [{ role: 'user', content: 'say prose.' }];
const ask = (more: object, server = prose) =>
  server.post('/v1/chat/completions', { messages, max_tokens: 300, temperature: 0, ...more });
const jsonSchema = (schema: unknown) => ({
  type: 'json_schema',
  json_schema: { name: 'answer', schema, strict: true },
});

/** Schemas whose every answer is short, so that the model cannot go on for ever. */
const SCHEMAS: Record<string, object> = {
  'an object': {
    type: 'object',
    properties: { ok: { type: 'boolean' }, size: { enum: ['small', 'large'] } },
    required: ['ok', 'size'],
    additionalProperties: false,
  },
  'const and null': {
    type: 'object',
    properties: { a: { const: 7 }, b: { type: 'null' } },
    required: ['a', 'b'],
    additionalProperties: false,
  },
  anyOf: {
    anyOf: [
      { type: 'object', properties: { x: { const: 'é"\\' } }, required: ['x'], additionalProperties: false },
      { type: 'null' },
    ],
  },
  definitions: {
    type: 'object',
    properties: { first: { $ref: '#/$defs/flag' }, second: { $ref: '#/$defs/flag' } },
    required: ['first', 'second'],
    additionalProperties: false,
    $defs: { flag: { type: 'boolean' } },
  },
  'nested arrays': {
    type: 'array',
    items: { type: 'array', items: { type: 'boolean' }, minItems: 1, maxItems: 2 },
    minItems: 2,
    maxItems: 2,
  },
  'a bounded text': {
    type: 'object',
    properties: { t: { type: 'string', maxLength: 5 } },
    required: ['t'],
    additionalProperties: false,
  },
};

test('without a form the model writes prose', async () => {
  expect(readChatReply((await ask({})).body).content).toBe('Once upon a time there was a model.');
});

describe.each(Object.entries(SCHEMAS))('schema: %s', (_, schema) => {
  const check = (text: string) => {
    expect(new Ajv({ strict: false }).validate(schema, JSON.parse(text)), text).toBe(true);
  };

  test.each([0, 1, 2])('the answer follows it, seed %i', async seed => {
    const { status, text, body } = await ask({ response_format: jsonSchema(schema), seed, temperature: seed });
    expect(status, text).toBe(200);
    const { content, finish } = readChatReply(body);
    expect(finish).toBe('stop');
    check(content);
  });

  test('so do a stream and the other APIs', async () => {
    const body = { messages, max_tokens: 300, temperature: 0, stream: true, response_format: jsonSchema(schema) };
    check(readChatStream(await prose.stream('/v1/chat/completions', body)).content);
    const format = { type: 'json_schema', schema };
    const message = { messages, max_tokens: 300, temperature: 0, output_config: { format } };
    check((await prose.post('/v1/messages', message)).body.content[0].text);
    const response = { input: 'say prose.', temperature: 0, text: { format: { ...format, name: 'answer' } } };
    check((await prose.post('/v1/responses', response)).body.output[0].content[0].text);
    const completion = { prompt: '<|prose|>', max_tokens: 300, response_format: jsonSchema(schema) };
    check((await prose.post('/v1/completions', completion)).body.choices[0].text);
  });
});

test.each([1, 2, 3, 4])(
  'json_object: what the model says is an object, or the beginning of one, seed %i',
  async seed => {
    const { status, body } = await ask({
      response_format: { type: 'json_object' },
      seed,
      temperature: 1,
      max_tokens: 60,
    });
    expect(status).toBe(200);
    const { content, finish } = readChatReply(body);
    expect(content.trimStart()).toMatch(/^\{/);
    if (finish === 'stop') expect(typeof JSON.parse(content)).toBe('object');
  },
);

test('regex and grammar', async () => {
  expect(readChatReply((await ask({ regex: '^[A-C]{3}-\\d{2}$' })).body).content).toMatch(/^[A-C]{3}-\d{2}$/);
  const grammar = 'root ::= "yes" | "no" sp [0-9]\nsp ::= " "';
  expect(readChatReply((await ask({ grammar })).body).content).toMatch(/^(yes|no \d)$/);
});

describe('a form that cannot be kept is refused by name, and the server lives', () => {
  const circle = { $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/a' } } };
  test.each<[string, object, RegExp]>([
    ['look-ahead in regex', { regex: '(?=a)b' }, /regex/],
    ['an open group in regex', { regex: '(' }, /regex/],
    ['a back reference', { regex: '(a)\\1' }, /regex/],
    ['text that is no grammar', { grammar: 'root ::= "a' }, /grammar/],
    ['a grammar without root', { grammar: 'start ::= "a"' }, /grammar|root/],
    ['a grammar with an unknown rule', { grammar: 'root ::= nothing' }, /nothing/],
    ['a look-ahead in a pattern', { response_format: jsonSchema({ type: 'string', pattern: '(?!x)y' }) }, /pattern/],
    ['an unknown type', { response_format: jsonSchema({ type: 'strin' }) }, /type/],
    ['a reference to nowhere', { response_format: jsonSchema({ $ref: '#/$defs/nope' }) }, /\$ref|nope/],
    ['a reference elsewhere', { response_format: jsonSchema({ $ref: 'http://example.com/x' }) }, /\$ref/],
    ['a circle of references', { response_format: jsonSchema(circle) }, /\$ref|\$defs|recurs/],
    ['not', { response_format: jsonSchema({ not: { type: 'string' } }) }, /not/],
    ['an unknown format', { response_format: { type: 'yaml' } }, /response_format/],
    ['a schema that is no object', { response_format: jsonSchema(5) }, /schema/],
    ['two forms', { response_format: { type: 'json_object' }, regex: 'a' }, /regex/],
    ['words of another server', { guided_json: { type: 'object' } }, /guided_json/],
  ])('%s', async (_, more, named) => {
    const { status, body } = await ask(more);
    expect(status).toBe(400);
    expect(body.error.param).toMatch(/^(regex|grammar|response_format|guided_json)/);
    expect(`${body.error.param}: ${body.error.message}`).toMatch(named);
    expect(readChatReply((await ask({ max_tokens: 3 })).body).finish).toBe('length');
  });
});

test.each([
  ['\\d', '^\\d+$'],
  ['\\w', '^\\w{1,4}$'],
])('a pattern with %s is kept or refused, never ignored', async (_, pattern) => {
  const { status, body } = await ask({
    response_format: jsonSchema({ type: 'string', pattern, maxLength: 6 }),
    max_tokens: 40,
  });
  expect([200, 400]).toContain(status);
  if (status === 400) expect(body.error.message).toContain('pattern');
  else if (readChatReply(body).finish === 'stop') {
    expect(JSON.parse(readChatReply(body).content)).toMatch(new RegExp(pattern, 'u'));
  }
});

describe('a tree', () => {
  const tree = {
    $ref: '#/$defs/node',
    $defs: {
      node: {
        type: 'object',
        properties: {
          leaf: { type: 'boolean' },
          children: { type: 'array', items: { $ref: '#/$defs/node' }, maxItems: 2 },
        },
        required: ['leaf', 'children'],
        additionalProperties: false,
      },
    },
  };
  test.each([1, 2, 3])('recursion ends in an answer or at the limit, seed %i', async seed => {
    const { status, body } = await ask({ response_format: jsonSchema(tree), seed, temperature: 1, max_tokens: 200 });
    expect(status).toBe(200);
    const { content, finish } = readChatReply(body);
    if (finish === 'stop') expect(new Ajv({ strict: false }).validate(tree, JSON.parse(content))).toBe(true);
    else expect(content).toMatch(/^\{/);
  });
});

describe('descriptions have no influence on the form', () => {
  const DESCRIPTIONS = [
    'plain',
    'a "quote"',
    "it's",
    '{ } [ ]',
    'é 漢 😄',
    '\\d+ \\',
    '</tool_call>',
    'root ::= "x"',
    '\n\t',
    '#/$defs/x',
  ];
  test.each(DESCRIPTIONS)('%j', async description => {
    const parameters = {
      type: 'object',
      properties: { on: { type: 'boolean', description } },
      required: ['on'],
      additionalProperties: false,
    };
    const tools = [{ type: 'function', function: { name: 'light', description, parameters } }];
    const { status, text, body } = await ask({ tools, tool_choice: 'required', parallel_tool_calls: false });
    expect(status, text).toBe(200);
    const { calls, finish } = readChatReply(body);
    expect(finish).toBe('tool_calls');
    expect(calls).toHaveLength(1);
    expect(calls[0].name).toBe('light');
    expect(JSON.parse(calls[0].arguments)).toEqual({ on: expect.any(Boolean) });
  });
});

describe('a model that reasons', () => {
  const schema = SCHEMAS['an object'];
  test('thinks freely, then keeps to the form', async () => {
    const { status, text, body } = await ask({ response_format: jsonSchema(schema) }, thinker);
    expect(status, text).toBe(200);
    const { reasoning, content } = readChatReply(body);
    expect(reasoning).toBe('I would rather chat.');
    expect(new Ajv().validate(schema, JSON.parse(content))).toBe(true);
  });

  test('without thinking it keeps to the form at once', async () => {
    const { body } = await ask({ response_format: jsonSchema(schema), enable_thinking: false }, thinker);
    const { reasoning, content } = readChatReply(body);
    expect(reasoning).toBe('');
    expect(new Ajv().validate(schema, JSON.parse(content))).toBe(true);
  });
});

test('an answer cut by max_tokens is the beginning of one, and says so', async () => {
  const { body } = await ask({ response_format: jsonSchema(SCHEMAS['an object']), max_tokens: 4 });
  const { content, finish } = readChatReply(body);
  expect(finish).toBe('length');
  expect(content).toHaveLength(4);
});

test('the same form beside others at the same time gives the same bytes', async () => {
  const forms = Object.values(SCHEMAS).map(schema => ({
    response_format: jsonSchema(schema),
    seed: 5,
    temperature: 1,
  }));
  const alone: string[] = [];
  for (const form of forms) alone.push(readChatReply((await ask(form)).body).content);
  const together = await Promise.all(forms.map(form => ask(form)));
  expect(together.map(({ body }) => readChatReply(body).content)).toEqual(alone);
});

test('a form that takes long to compile takes no place from others', async () => {
  const args = ['--ctx', '2000', '--slots', '1'];
  const server = await startServe({ model: path.join(directory, 'prose'), args });
  const order: string[] = [];
  const slow = ask({ grammar: `root ::= ${'[a-z]? '.repeat(1000)}` }, server).then(reply => {
    order.push('slow');
    return reply;
  });
  // its body has been read when a later one is answered
  await server.post('/tokenize', { content: 'Hello' });
  for (let i = 0; i < 3; i++) {
    const quick = await ask({ max_tokens: 5 }, server);
    expect(quick.status).toBe(200);
    order.push('quick');
  }
  expect(order).toEqual(['quick', 'quick', 'quick']);
  // a fast machine may be done within the limit
  expect([200, 400]).toContain((await slow).status);
});
