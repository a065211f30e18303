/** Schemas as Pydantic, frameworks and coding agents write them: each is enforced, or refused for a reason that stands here. */

import { describe, expect, it } from 'vitest';
import type { JsonSchema } from './api.ts';
import { refusal, sampleTexts, sampleValid, schemaSpec } from './test-support.ts';

function model(fields: Record<string, object>): JsonSchema {
  const properties = Object.fromEntries(
    Object.entries(fields).map(([name, field]) => [name, { title: name, ...field }]),
  );
  return { properties, required: Object.keys(fields), title: 'Record', type: 'object' };
}

/** As Pydantic's model_json_schema writes them. */
const PYDANTIC: Record<string, JsonSchema> = {
  'titles, defaults and null': {
    title: 'User',
    type: 'object',
    properties: {
      id: { title: 'Id', type: 'integer' },
      name: { default: 'Jane', maxLength: 50, minLength: 1, title: 'Name', type: 'string' },
      nickname: { anyOf: [{ type: 'string' }, { type: 'null' }], default: null, title: 'Nickname' },
      score: { exclusiveMaximum: 100.5, minimum: 0, title: 'Score', type: 'number' },
    },
    required: ['id', 'score'],
  },
  'definitions and enums': {
    $defs: {
      Color: { enum: ['red', 'green'], title: 'Color', type: 'string' },
      Item: {
        additionalProperties: false,
        properties: {
          color: { $ref: '#/$defs/Color', description: 'of the paint' },
          kind: { const: 'item', default: 'item', title: 'Kind', type: 'string' },
        },
        required: ['color'],
        title: 'Item',
        type: 'object',
      },
    },
    properties: {
      items: { items: { $ref: '#/$defs/Item' }, minItems: 1, title: 'Items', type: 'array' },
      favourite: { allOf: [{ $ref: '#/$defs/Color' }], default: 'red' },
    },
    required: ['items'],
    title: 'Box',
    type: 'object',
  },
  'discriminated unions': {
    $defs: {
      Cat: {
        properties: { pet: { const: 'cat', title: 'Pet', type: 'string' }, lives: { title: 'Lives', type: 'integer' } },
        required: ['pet', 'lives'],
        title: 'Cat',
        type: 'object',
      },
      Dog: {
        properties: { pet: { enum: ['dog', 'puppy'], title: 'Pet', type: 'string' } },
        required: ['pet'],
        title: 'Dog',
        type: 'object',
      },
    },
    properties: {
      pet: {
        discriminator: {
          mapping: { cat: '#/$defs/Cat', dog: '#/$defs/Dog', puppy: '#/$defs/Dog' },
          propertyName: 'pet',
        },
        oneOf: [{ $ref: '#/$defs/Cat' }, { $ref: '#/$defs/Dog' }],
        title: 'Pet',
      },
    },
    required: ['pet'],
    title: 'Owner',
    type: 'object',
  },
  'dates and times': model({
    at: { format: 'date-time', type: 'string' },
    day: { format: 'date', type: 'string' },
    clock: { format: 'time', type: 'string' },
    wait: { format: 'duration', type: 'string' },
  }),
  'numbers and ids': model({
    id: { format: 'uuid', type: 'string' },
    id4: { format: 'uuid4', type: 'string' },
    price: { anyOf: [{ type: 'number' }, { pattern: '^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$', type: 'string' }] },
    host: { format: 'ipv4', type: 'string' },
  }),
  addresses: model({
    mail: { format: 'email', type: 'string' },
    link: { format: 'uri', maxLength: 2083, minLength: 1, type: 'string' },
  }),
  'any text': model({
    secret: { format: 'password', type: 'string', writeOnly: true },
    file: { format: 'path', type: 'string' },
  }),
  'mappings and tuples': {
    $defs: { Key: { enum: ['a', 'b'], title: 'Key', type: 'string' } },
    properties: {
      counts: { additionalProperties: { type: 'integer' }, title: 'Counts', type: 'object' },
      byKey: {
        additionalProperties: { type: 'boolean' },
        propertyNames: { $ref: '#/$defs/Key' },
        title: 'ByKey',
        type: 'object',
      },
      free: { additionalProperties: true, title: 'Free', type: 'object' },
      anything: { title: 'Anything' },
      pair: {
        maxItems: 2,
        minItems: 2,
        prefixItems: [{ type: 'integer' }, { type: 'string' }],
        title: 'Pair',
        type: 'array',
      },
    },
    required: ['counts', 'byKey', 'pair'],
    title: 'Maps',
    type: 'object',
  },
  'recursive models': {
    $defs: {
      Node: {
        properties: {
          value: { title: 'Value', type: 'integer' },
          next: { anyOf: [{ $ref: '#/$defs/Node' }, { type: 'null' }], default: null },
        },
        required: ['value'],
        title: 'Node',
        type: 'object',
      },
    },
    $ref: '#/$defs/Node',
  },
};

const text = (description: string, more: object = {}) => ({ type: 'string', description, ...more });
const draft7 = { $schema: 'http://json-schema.org/draft-07/schema#' };
const tool = (properties: object, required: readonly string[], more: object = {}): JsonSchema => ({
  type: 'object',
  properties,
  required,
  additionalProperties: false,
  ...more,
});

/** Arguments of tools, as coding agents and frameworks send them. */
const TOOLS: Record<string, JsonSchema> = {
  'a command': tool(
    {
      command: text('The command to execute'),
      timeout: { type: 'number', description: 'Milliseconds', maximum: 600000 },
      description: text('What it does, in 5-10 words'),
      run_in_background: { type: 'boolean', description: 'true to run it in the background' },
    },
    ['command'],
    draft7,
  ),
  'reading a file': tool(
    {
      file_path: text('The absolute path', { minLength: 1 }),
      offset: { type: 'integer', minimum: 0, maximum: 9007199254740991 },
      limit: { type: 'integer', exclusiveMinimum: 0, maximum: 9007199254740991 },
    },
    ['file_path'],
    draft7,
  ),
  'editing a file': tool(
    {
      file_path: text('The absolute path'),
      old_string: text('The text to replace'),
      new_string: text('The text to replace it with'),
      replace_all: { type: 'boolean', default: false },
    },
    ['file_path', 'old_string', 'new_string'],
    draft7,
  ),
  'many edits': tool(
    {
      filePath: text('Path'),
      edits: {
        type: 'array',
        minItems: 1,
        items: tool({ oldString: text('Old'), newString: text('New'), replaceAll: { type: 'boolean' } }, [
          'oldString',
          'newString',
        ]),
      },
    },
    ['filePath', 'edits'],
  ),
  'a list of tasks': tool(
    {
      todos: {
        type: 'array',
        items: tool(
          {
            content: text('Task', { minLength: 1 }),
            status: { type: 'string', enum: ['pending', 'in_progress', 'completed'] },
            activeForm: text('Task', { minLength: 1 }),
          },
          ['content', 'status', 'activeForm'],
        ),
      },
    },
    ['todos'],
    draft7,
  ),
  'fetching a page': tool({ url: text('The URL', { format: 'uri' }), prompt: text('What to look for') }, [
    'url',
    'prompt',
  ]),
  'searching text': tool(
    {
      pattern: text('The regular expression to search for'),
      output_mode: { type: 'string', enum: ['content', 'files_with_matches', 'count'] },
      '-A': { type: 'number' },
      '-i': { type: 'boolean' },
      multiline: { type: 'boolean' },
    },
    ['pattern'],
  ),
  'asking the user': tool(
    {
      questions: {
        type: 'array',
        minItems: 1,
        maxItems: 4,
        items: tool(
          {
            question: text('The question'),
            header: text('Label'),
            options: {
              type: 'array',
              minItems: 2,
              maxItems: 4,
              items: tool({ label: text('Shown'), description: text('Meaning') }, ['label', 'description']),
            },
            multiSelect: { type: 'boolean' },
          },
          ['question', 'header', 'options', 'multiSelect'],
        ),
      },
      answers: { type: 'object', propertyNames: { type: 'string' }, additionalProperties: { type: 'string' } },
    },
    ['questions'],
    { $schema: 'https://json-schema.org/draft/2020-12/schema' },
  ),
  'no arguments': { type: 'object', properties: {} },
  'no arguments, closed': { type: 'object', properties: {}, additionalProperties: false, ...draft7 },
  'only a type': { type: 'object' },
  'strict mode with null': tool(
    { city: text('City'), unit: { type: ['string', 'null'], enum: ['celsius', 'fahrenheit', null] } },
    ['city', 'unit'],
  ),
  'LangChain: definitions': {
    title: 'Joke',
    description: 'A joke',
    type: 'object',
    properties: {
      setup: { title: 'Setup', description: 'The question', type: 'string' },
      rating: { title: 'Rating', anyOf: [{ type: 'integer', minimum: 1, maximum: 10 }, { type: 'null' }] },
      source: { $ref: '#/definitions/Source' },
    },
    required: ['setup'],
    definitions: { Source: { title: 'Source', enum: ['web', 'book'] } },
  },
  'AI SDK: enum as text': {
    ...draft7,
    type: 'object',
    properties: { result: { type: 'string', enum: ['sunny', 'rainy'] } },
    required: ['result'],
    additionalProperties: false,
  },
  'AI SDK: a list of elements': {
    ...draft7,
    type: 'object',
    properties: {
      elements: {
        type: 'array',
        items: tool({ name: text('Name'), size: { type: 'array', items: [{ type: 'number' }, { type: 'number' }] } }, [
          'name',
          'size',
        ]),
      },
    },
    required: ['elements'],
    additionalProperties: false,
  },
};

describe.each([
  ['Pydantic', PYDANTIC],
  ['tools', TOOLS],
])('%s', (_, schemas) => {
  it.each(Object.keys(schemas))('%s', async name => {
    expect((await sampleValid(schemas[name], 6)).length).toBeGreaterThan(0);
  });
});

describe('refused, because the mask cannot hold it', () => {
  const cases: [string, JsonSchema, string][] = [
    ['sets', { type: 'array', items: { type: 'string' }, uniqueItems: true }, 'uniqueItems'],
    [
      'keys by pattern',
      { type: 'object', patternProperties: { '^x': { type: 'integer' } }, additionalProperties: false },
      'patternProperties',
    ],
    ['bytes', { type: 'string', format: 'binary' }, 'format'],
    ['OpenAPI 3.0', { type: 'string', nullable: true }, 'nullable'],
    ['conditions', { type: 'object', if: { required: ['a'] }, else: {} }, 'if'],
  ];
  it.each(cases)('%s', (_, schema, keyword) => {
    expect(refusal(schemaSpec(schema))).toMatchObject({ code: 'UNSUPPORTED_SCHEMA', details: { keyword } });
  });
});

it('samples differ, so that they say something', async () => {
  expect(new Set(await sampleTexts(TOOLS['a command'], 6)).size).toBeGreaterThan(3);
});
