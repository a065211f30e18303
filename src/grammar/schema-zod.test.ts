/** Schemas as zod 4 and OpenAI's helpers write them: each is enforced, or refused for a reason that stands here. */

import { zodFunction, zodResponseFormat, zodTextFormat } from 'openai/helpers/zod';
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { JsonSchema } from './api.ts';
import { refusal, sampleValid, schemaSpec } from './test-support.ts';

const address = z.object({ street: z.string().describe('with number'), zip: z.string().regex(/^\d{5}$/) });
const node = z.object({
  name: z.string(),
  get children() {
    return z.array(node);
  },
});
const shape = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('circle'), radius: z.number().positive() }),
  z.object({ kind: z.literal('box'), width: z.number().min(0), height: z.number().min(0) }),
]);

const ZOD: Record<string, z.ZodType> = {
  email: z.email(),
  'email of at most 100 characters': z.email().max(100),
  'email of at most 254 characters': z.email().max(254),
  'email of one company': z.email().endsWith('@example.com'),
  uuid: z.uuid(),
  uuidv4: z.uuidv4(),
  guid: z.guid(),
  cuid: z.cuid(),
  cuid2: z.cuid2(),
  ulid: z.ulid(),
  nanoid: z.nanoid(),
  ksuid: z.ksuid(),
  xid: z.xid(),
  url: z.url(),
  'url of at most 2048 characters': z.url().max(2048),
  hostname: z.hostname(),
  ipv4: z.ipv4(),
  ipv6: z.ipv6(),
  cidrv4: z.cidrv4(),
  cidrv6: z.cidrv6(),
  mac: z.mac(),
  base64: z.base64(),
  base64url: z.base64url(),
  hex: z.hex(),
  'sha256 in hex': z.hash('sha256'),
  e164: z.e164(),
  date: z.iso.date(),
  time: z.iso.time(),
  datetime: z.iso.datetime(),
  'datetime with offset': z.iso.datetime({ offset: true }),
  'datetime without zone': z.iso.datetime({ local: true }),
  'datetime with milliseconds': z.iso.datetime({ precision: 3 }),
  duration: z.iso.duration(),
  'several string checks': z.string().startsWith('a').endsWith('z').min(2).max(12),
  'a pattern with lengths': z
    .string()
    .regex(/^[a-z0-9]+(?:-[a-z0-9]+)*$/)
    .min(3)
    .max(40),
  'template literal': z.templateLiteral(['v', z.int().min(0), '-', z.enum(['alpha', 'beta'])]),
  int: z.int(),
  int32: z.int32(),
  float32: z.float32(),
  'bounded numbers': z.tuple([z.number().gt(0).lt(1), z.int().min(-5).max(5), z.number().nonnegative()]),
  literals: z.tuple([z.literal('a'), z.literal([1, 2, null, true])]),
  enum: z.enum(['low', 'medium', 'high']),
  'optional, nullable, default': z.object({
    a: z.string().optional(),
    b: z.string().nullable(),
    c: z.int().default(3),
    d: z.string().nullish().catch('x'),
    e: z.never().optional(),
  }),
  'strict object': z.strictObject({ a: z.boolean() }),
  'loose object': z.looseObject({ a: z.boolean() }),
  catchall: z.object({ a: z.boolean() }).catchall(z.number()),
  record: z.record(z.string(), z.number()),
  'record of an enum': z.record(z.enum(['a', 'b']), z.number()),
  'partial record of an enum': z.partialRecord(z.enum(['a', 'b']), z.number()),
  'record of a pattern': z.record(z.string().regex(/^x_[a-z]+$/), z.boolean()),
  'discriminated union': shape,
  union: z.union([z.string(), z.array(z.int()), z.object({ a: z.null() })]),
  'tuple with rest': z.tuple([z.string(), z.number()], z.boolean()),
  'tuple with an optional item': z.tuple([z.string(), z.number().optional()]),
  'array with lengths': z.array(z.string().max(5)).min(1).max(3),
  nonempty: z.array(z.int()).nonempty(),
  recursive: node,
  intersection: z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })),
  'any and unknown': z.object({ a: z.any(), b: z.unknown() }),
  'json value': z.json(),
  nested: z.object({ home: address, work: address.optional(), tags: z.array(z.string()) }),
};

describe('zod 4', () => {
  it.each(Object.keys(ZOD))('%s', async name => {
    const schema = z.toJSONSchema(ZOD[name], { io: 'input' }) as JsonSchema;
    const values = await sampleValid(schema, 5);
    expect(values.length).toBeGreaterThan(0);
    for (const value of values) expect(ZOD[name].safeParse(value).error, JSON.stringify(value)).toBeUndefined();
  });

  it.each(Object.keys(ZOD))('%s, for draft 7', async name => {
    const schema = z.toJSONSchema(ZOD[name], { target: 'draft-7', io: 'input' }) as JsonSchema;
    const values = await sampleValid(schema, 2);
    for (const value of values) expect(ZOD[name].safeParse(value).error, JSON.stringify(value)).toBeUndefined();
  });

  const refused: [string, z.ZodType, string][] = [
    ['steps that are no whole numbers', z.number().multipleOf(0.01), 'multipleOf'],
    ['steps of more than 1', z.int().multipleOf(5), 'multipleOf'],
    ['classes of Unicode properties', z.emoji(), 'pattern'],
    ['a format without a definition', z.jwt(), 'format'],
    ['look-ahead', z.string().regex(/^(?!admin).*$/), 'pattern'],
    ['bytes', z.file(), 'format'],
    ['branches that may hold together', z.xor([z.string().max(5), z.string().min(3)]), 'oneOf'],
  ];
  it.each(refused)('refused: %s', (_, type, keyword) => {
    const schema = z.toJSONSchema(type, { unrepresentable: 'any' }) as JsonSchema;
    expect(refusal(schemaSpec(schema))).toMatchObject({ code: 'UNSUPPORTED_SCHEMA', details: { keyword } });
  });
});

describe("OpenAI's helpers", () => {
  const person = z.object({
    name: z.string().describe('Full name'),
    age: z.int().min(0).max(130),
    email: z.email().nullable(),
    joined: z.iso.datetime(),
    address,
    shapes: z.array(shape),
    level: z.enum(['low', 'high']),
    tree: node,
  });
  const schemas: [string, unknown][] = [
    ['zodResponseFormat', zodResponseFormat(person, 'person').json_schema.schema],
    ['zodTextFormat', zodTextFormat(person, 'person').schema],
    ['zodFunction', zodFunction({ name: 'save', parameters: person }).function.parameters],
  ];
  it.each(schemas)('%s', async (_, schema) => {
    const values = await sampleValid(schema as JsonSchema, 6);
    expect(values.length).toBeGreaterThan(1);
    for (const value of values) expect(person.safeParse(value).error, JSON.stringify(value)).toBeUndefined();
  });
});
