/** What schemas mean here: texts that are in the language and texts that are not, and what is refused. */

import { describe, expect, it } from 'vitest';
import type { JsonSchema } from './api.ts';
import { lowerSpec } from './lower.ts';
import { accepts, refusal, sampleValid, schemaSpec } from './test-support.ts';

/** Each text is JSON, so that only the schema decides. */
async function expectLanguage(
  schema: JsonSchema,
  inside: readonly unknown[],
  outside: readonly unknown[],
): Promise<void> {
  for (const value of inside)
    expect([value, await accepts(schemaSpec(schema), JSON.stringify(value))]).toEqual([value, true]);
  for (const value of outside)
    expect([value, await accepts(schemaSpec(schema), JSON.stringify(value))]).toEqual([value, false]);
}

describe('objects', () => {
  it('come with their properties in order and without others', async () => {
    const schema = { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'null' } }, required: ['b'] };
    await expectLanguage(
      schema,
      [{ b: null }, { a: 1, b: null }],
      [{}, { a: 1 }, { b: null, a: 1 }, { a: 'x', b: null }, { b: null, c: 1 }, { a: 1, b: null, c: 1 }, []],
    );
  });

  it('are open where the schema says so; other keys never stand for a listed one', async () => {
    const schema = { type: 'object', properties: { ab: { type: 'null' } }, additionalProperties: { type: 'integer' } };
    await expectLanguage(
      schema,
      [{ ab: null, x: 1 }, { a: 1, abc: 2, '"\n': 3 }, {}],
      [{ ab: 1 }, { x: null }, { ab: null, x: 'y' }],
    );
    expect(await accepts(schemaSpec(schema), '{"\\u0061b":1}')).toBe(false);
    await expectLanguage({ type: 'object' }, [{}, { anything: [1, { x: null }] }], [[], 1]);
    await expectLanguage({ type: 'object', additionalProperties: false }, [{}], [{ a: 1 }]);
    await expectLanguage({ type: 'object', properties: {} }, [{}], [{ a: 1 }]);
  });

  it('take required properties that are not listed', async () => {
    const schema = { type: 'object', properties: { a: { type: 'null' } }, required: ['z'] };
    await expectLanguage(schema, [{ z: [1] }, { a: null, z: 1 }], [{}, { a: null }, { z: 1, a: null }]);
    expect(refusal(schemaSpec({ ...schema, additionalProperties: false }))?.code).toBe('UNSATISFIABLE');
  });

  it('may be maps, with bounds and key schemas', async () => {
    await expectLanguage(
      { type: 'object', additionalProperties: { type: 'integer' }, minProperties: 1, maxProperties: 2 },
      [{ a: 1 }, { a: 1, b: 2 }],
      [{}, { a: 1, b: 2, c: 3 }, { a: null }],
    );
    await expectLanguage(
      { type: 'object', propertyNames: { enum: ['x', 'y'] }, additionalProperties: { type: 'integer' } },
      [{}, { x: 1 }],
      [{ z: 1 }],
    );
    await expectLanguage({ type: 'object', propertyNames: { type: 'string' } }, [{ z: 1 }], []);
    await expectLanguage({ type: 'object', maxProperties: 0 }, [{}], [{ z: 1 }]);
  });

  it('have no property whose schema is false', async () => {
    const schema = { type: 'object', properties: { a: false, b: { type: 'null' } }, additionalProperties: true };
    await expectLanguage(schema, [{ b: null }, { c: 1 }], [{ a: 1 }, { b: null, a: 1 }]);
  });

  it('allow white space as people and programs write it', async () => {
    const schema = schemaSpec({
      type: 'object',
      properties: { a: { type: 'array', items: { type: 'integer' } } },
      required: ['a'],
    });
    for (const space of [0, 1, 2, 4, '\t'])
      expect(await accepts(schema, JSON.stringify({ a: [1, 2] }, null, space))).toBe(true);
    expect(await accepts(schema, '{"a":  [1]}')).toBe(false);
  });
});

describe('arrays', () => {
  it('keep to their bounds', async () => {
    await expectLanguage(
      { type: 'array', items: { type: 'null' }, minItems: 1, maxItems: 3 },
      [[null], [null, null, null]],
      [[], [1], [null, null, null, null]],
    );
    await expectLanguage({ type: 'array', maxItems: 0 }, [[]], [[1]]);
    const forty = Array.from({ length: 40 }, () => null);
    await expectLanguage(
      { type: 'array', items: { type: 'null' }, minItems: 40, maxItems: 40 },
      [forty],
      [forty.slice(1), [...forty, null]],
    );
  });

  it('have a prefix, all of it unless minItems says less', async () => {
    const prefixItems = [{ type: 'integer' }, { type: 'string' }];
    await expectLanguage({ type: 'array', prefixItems }, [[1, 'a']], [[], [1], ['a', 1], [1, 'a', 2]]);
    await expectLanguage({ type: 'array', prefixItems, minItems: 0 }, [[], [1], [1, 'a']], [['a'], [1, 'a', 2]]);
    await expectLanguage(
      { prefixItems, items: { type: 'null' }, maxItems: 3 },
      [[1, 'a', null]],
      [
        [1, 'a', 2],
        [1, 'a', null, null],
      ],
    );
  });
});

describe('strings and numbers', () => {
  it('count characters, not bytes or escapes', async () => {
    await expectLanguage(
      { type: 'string', minLength: 2, maxLength: 2 },
      ['ab', 'é漢', '😀😀', '\n"'],
      ['a', 'abc', '😀'],
    );
    const long = 'x'.repeat(1023);
    await expectLanguage(
      { type: 'string', minLength: 1023, maxLength: 1500 },
      [long, long + long.slice(546)],
      [long.slice(1), `${long}${long}`],
    );
  });

  it('search for patterns, with characters beyond ASCII and those that JSON escapes', async () => {
    await expectLanguage({ type: 'string', pattern: 'b|c$' }, ['abx', 'c', 'xc'], ['', 'cx']);
    await expectLanguage({ type: 'string', pattern: '^[é-ü"\\\\\\n]+$' }, ['é', 'ü"', '\\\n'], ['', 'e', 'ý']);
    await expectLanguage(
      { type: 'string', pattern: '^[\\u{1F600}-\\u{1F64F}漢]$' },
      ['😀', '漢'],
      ['🤀', 'a', '\u{1f5ff}'],
    );
    await expectLanguage({ type: 'string', pattern: '^[a-z]+$', maxLength: 3 }, ['abc'], ['abcd', '']);
  });

  it('know formats', async () => {
    const cases: [string, string[], string[]][] = [
      ['date', ['2024-02-29', '1999-12-31'], ['2023-02-29', '2024-13-01', '24-01-01']],
      ['time', ['23:59:59Z', '01:02:03.5+01:00'], ['24:00:00Z', '12:00:00']],
      ['date-time', ['2024-02-29T00:00:00Z'], ['2024-02-29', '2024-02-30T00:00:00Z']],
      ['duration', ['P1DT2H', 'PT5S', 'P2W'], ['P', 'PT', '1D']],
      ['email', ['a.b+c@example.org'], ['a@b', 'a..b@c.de', 'a b@c.de']],
      ['hostname', ['example.org', 'a-b.c'], ['-a.b', 'a..b']],
      ['ipv4', ['0.10.200.255'], ['256.0.0.1', '1.2.3', '01.2.3.4']],
      ['ipv6', ['::', '::1', '1::', '1:2:3:4:5:6:7:8', 'fe80::1:2'], ['1:2', '1::2::3', ':::', '1:2:3:4:5:6:7:8:9']],
      ['uuid', ['01234567-89ab-cdef-0123-456789ABCDEF'], ['01234567-89ab-cdef-0123-456789ABCDE']],
      ['uri', ['https://example.org:80/a/b?c=d#e', 'mailto:a@b.org', 'urn:x:y'], ['//a', 'a b:c', 'https://a b/']],
    ];
    for (const [format, inside, outside] of cases) await expectLanguage({ type: 'string', format }, inside, outside);
    await expectLanguage({ type: 'integer', format: 'uint8' }, [0, 255], [-1, 256]);
    await expectLanguage({ type: 'number', format: 'double' }, [0.5], ['x']);
  });

  it('keep numbers within their bounds', async () => {
    await expectLanguage(
      { type: 'integer', minimum: -12, maximum: 120 },
      [-12, -1, 0, 9, 99, 120],
      [-13, 121, 1.5, 1200],
    );
    await expectLanguage({ type: 'integer', exclusiveMinimum: 0, exclusiveMaximum: 1.5 }, [1], [0, 2]);
    await expectLanguage({ type: 'number', minimum: 0, maximum: 1 }, [0, 0.5, 1, 0.999], [-0.1, 1.01, 2]);
    await expectLanguage(
      { type: 'number', exclusiveMinimum: -1.25, exclusiveMaximum: 0 },
      [-1.2, -0.001],
      [-1.25, 0, -1.3],
    );
    expect(await accepts(schemaSpec({ type: 'number', minimum: 1e21 }), `2${'0'.repeat(21)}`)).toBe(true);
    expect(await accepts(schemaSpec({ type: 'number', minimum: 1e21 }), `9${'0'.repeat(20)}`)).toBe(false);
    await expectLanguage({ type: ['number', 'null'], multipleOf: 1 }, [3, null], [3.5]);
    expect(refusal(schemaSpec({ type: 'integer', minimum: 3, maximum: 2 }))?.code).toBe('UNSATISFIABLE');
  });

  it('come from lists', async () => {
    await expectLanguage({ enum: [1, 'é"', null, { b: 1, a: [] }] }, [1, 'é"', null, { b: 1, a: [] }], [2, 'x', {}]);
    await expectLanguage({ type: 'string', enum: ['a', 1, 'abc'], maxLength: 1 }, ['a'], [1, 'abc']);
    await expectLanguage({ type: 'number', const: 3 }, [3], [4]);
  });
});

describe('combinations', () => {
  it('joins allOf and the keywords beside it', async () => {
    const schema = {
      type: 'object',
      properties: { a: { type: 'integer', minimum: 3 } },
      allOf: [{ properties: { a: { maximum: 5 }, b: { type: 'null' } } }, { required: ['a'] }],
    };
    await expectLanguage(schema, [{ a: 3 }, { a: 5, b: null }], [{}, { a: 2 }, { a: 6 }, { b: null }]);
  });

  it('multiplies anyOf with the keywords beside it', async () => {
    const schema = {
      type: 'object',
      properties: { kind: { type: 'string' }, size: { type: 'integer' } },
      required: ['kind'],
      anyOf: [{ properties: { kind: { const: 'a' } }, required: ['size'] }, { properties: { kind: { const: 'b' } } }],
    };
    await expectLanguage(
      schema,
      [{ kind: 'a', size: 1 }, { kind: 'b' }, { kind: 'b', size: 1 }],
      [{ kind: 'a' }, { kind: 'c' }, {}],
    );
  });

  it('takes oneOf whose branches exclude each other, and no other', async () => {
    const tagged = (kind: string) => ({ type: 'object', properties: { kind: { const: kind } }, required: ['kind'] });
    await expectLanguage(
      { oneOf: [tagged('a'), tagged('b'), { type: 'null' }, { enum: [1, 2] }, { const: 3 }] },
      [{ kind: 'a' }, { kind: 'b' }, null, 2, 3],
      [{}, 4],
    );
    for (const oneOf of [
      [{ type: 'integer' }, { type: 'number' }],
      [{ properties: { kind: { const: 'a' } } }, { properties: { kind: { const: 'b' } } }],
      [{ type: 'object' }, { type: 'object', required: ['a'] }],
    ]) {
      expect(refusal(schemaSpec({ oneOf }))).toMatchObject({
        code: 'UNSUPPORTED_SCHEMA',
        details: { keyword: 'oneOf', path: '#/oneOf' },
      });
    }
  });

  it('follows references, recursive ones too', async () => {
    const schema = {
      $ref: '#/$defs/node',
      $defs: {
        node: {
          type: 'object',
          properties: { value: { type: 'integer' }, children: { type: 'array', items: { $ref: '#/$defs/node' } } },
          required: ['value', 'children'],
        },
      },
    };
    await expectLanguage(
      schema,
      [{ value: 1, children: [{ value: 2, children: [] }] }],
      [{ value: 1, children: [1] }, { value: 1 }],
    );
    expect((await sampleValid(schema, 10)).length).toBeGreaterThan(5);
    await expectLanguage(
      { properties: { 'a/b~c': { type: 'null' }, x: { $ref: '#/properties/a~1b~0c' } } },
      [{ x: null }],
      [{ x: 1 }],
    );
    await expectLanguage(
      { type: 'object', properties: { again: { $ref: '#' } } },
      [{ again: { again: {} } }],
      [{ again: 1 }],
    );
  });

  it('keeps constants of one property apart from its siblings', async () => {
    await expectLanguage(
      { allOf: [{ enum: [1, 2, { a: 1, b: 2 }] }, { enum: [2, 3, { b: 2, a: 1 }] }] },
      [2, { a: 1, b: 2 }],
      [1, 3],
    );
  });
});

describe('refusals', () => {
  const cases: [JsonSchema, string, string][] = [
    [{ not: { type: 'null' } }, 'not', '#/not'],
    [{ type: 'object', properties: { a: { if: {} } } }, 'if', '#/properties/a/if'],
    [{ patternProperties: { x: {} } }, 'patternProperties', '#/patternProperties'],
    [{ type: 'array', items: { contains: {} } }, 'contains', '#/items/contains'],
    [{ type: 'array', uniqueItems: true }, 'uniqueItems', '#/uniqueItems'],
    [{ anyOf: [{ type: 'null' }, { unknownKeyword: 1 }] }, 'unknownKeyword', '#/anyOf/1/unknownKeyword'],
    [{ $ref: 'https://example.org/schema' }, '$ref', '#/$ref'],
    [{ $ref: '#anchor' }, '$ref', '#/$ref'],
    [{ $ref: '#' }, '$ref', '#/$ref'],
    [
      { $ref: '#/$defs/a', $defs: { a: { allOf: [{ $ref: '#/$defs/b' }] }, b: { $ref: '#/$defs/a' } } },
      '$ref',
      '#/$defs/a/$ref',
    ],
    [{ type: 'string', format: 'made-up' }, 'format', '#/format'],
    [{ type: 'number', multipleOf: 0.1 }, 'multipleOf', '#/multipleOf'],
    [{ type: 'string', pattern: '^(?!a)' }, 'pattern', '#/pattern'],
    [{ type: 'string', pattern: '^(a|b)*a(a|b){16}c', format: 'lowercase' }, 'format', '#/format'],
    [{ type: 'string', pattern: '^(ab)*$', maxLength: 5000 }, 'pattern', '#/pattern'],
    [{ type: 'string', contentEncoding: 'gzip' }, 'contentEncoding', '#/contentEncoding'],
    [{ type: 'string', nullable: true }, 'nullable', '#/nullable'],
    [{ type: 'object', minProperties: 2 }, 'minProperties', '#/minProperties'],
    [{ type: 'object', properties: { a: {}, b: {} }, maxProperties: 1 }, 'maxProperties', '#/maxProperties'],
    [{ properties: { a: { $id: 'x' } } }, '$id', '#/properties/a/$id'],
    [{ type: 'string', maxLength: 1e7 }, 'maxLength', '#/maxLength'],
    [{ enum: [{ a: 1 }], properties: {} }, 'properties', '#/properties'],
  ];
  it.each(cases)('%j: %s', (schema, keyword, path) => {
    const error = refusal(schemaSpec(schema));
    expect(error).toMatchObject({ name: 'RequestError', code: 'UNSUPPORTED_SCHEMA', details: { keyword, path } });
    expect(error!.message).toContain(path);
  });

  const invalid: [JsonSchema, string][] = [
    [{ type: 'text' }, '#/type'],
    [{ type: [] }, '#/type'],
    [{ enum: [] }, '#/enum'],
    [{ properties: { a: 1 } } as JsonSchema, '#/properties'],
    [{ items: [] }, '#/items'],
    [{ items: [{}], prefixItems: [{}] }, '#/items'],
    [{ minLength: -1 }, '#/minLength'],
    [{ maxItems: 1.5 }, '#/maxItems'],
    [{ required: 'a' }, '#/required'],
    [{ minimum: '3' }, '#/minimum'],
    [{ $ref: '#/$defs/missing' }, '#/$ref'],
    [{ $ref: '#/__proto__' }, '#/$ref'],
  ];
  it.each(invalid)('%j is no schema', (schema, path) => {
    expect(refusal(schemaSpec(schema))).toMatchObject({ code: 'INVALID_SCHEMA', details: { path } });
  });

  it('refuses what no value can be', () => {
    for (const schema of [
      false,
      { allOf: [{ type: 'string' }, { type: 'null' }] },
      { type: 'object', properties: { a: { $ref: '#' } }, required: ['a'] },
      { type: 'string', minLength: 3, maxLength: 2 },
      { type: 'string', pattern: 'a', format: 'date' },
      { type: 'string', pattern: '^(abc)*$', minLength: 4, maxLength: 5 },
      { enum: ['abc'], maxLength: 2 },
    ] as JsonSchema[]) {
      expect(refusal(schemaSpec(schema))?.code).toBe('UNSATISFIABLE');
    }
  });
});

describe('hostile schemas', () => {
  it('are refused before anything follows them', () => {
    const nest = (depth: number): JsonSchema => (depth === 0 ? {} : { items: nest(depth - 1) });
    expect(refusal(schemaSpec(nest(100)))?.code).toBe('SCHEMA_TOO_LARGE');
    expect(refusal(schemaSpec({ description: 'x'.repeat(600_000) }))?.code).toBe('SCHEMA_TOO_LARGE');
    expect(refusal(schemaSpec({ enum: Array.from({ length: 6000 }, (_, i) => i) }))?.code).toBe('UNSUPPORTED_SCHEMA');
    const branches = Array.from({ length: 12 }, (_, i) => ({
      anyOf: [{ minLength: i }, { maxLength: 100 - i }, { minLength: 50 + i }],
    }));
    expect(refusal(schemaSpec({ type: 'string', allOf: branches }))?.code).toBe('SCHEMA_TOO_LARGE');
  });

  it('may be long chains of references', async () => {
    const $defs = Object.fromEntries(
      Array.from({ length: 3000 }, (_, i) => [
        `d${i}`,
        i === 2999 ? { type: 'null' } : { type: 'array', items: { $ref: `#/$defs/d${i + 1}` } },
      ]),
    );
    expect(lowerSpec(schemaSpec({ $ref: '#/$defs/d0', $defs })).length).toBeGreaterThan(1000);
    const plain = Object.fromEntries(Array.from({ length: 3000 }, (_, i) => [`d${i}`, { $ref: `#/$defs/d${i + 1}` }]));
    expect(refusal(schemaSpec({ $ref: '#/$defs/d0', $defs: plain }))?.code).toBe('UNSUPPORTED_SCHEMA');
  });

  it('have no influence by their descriptions', () => {
    const schema = (title: string) => ({
      title,
      type: 'object',
      properties: { a: { description: title, default: title, examples: [title], 'x-note': title, type: 'integer' } },
    });
    const plain = lowerSpec(schemaSpec(schema('plain')));
    for (const text of ['"{}', 'root ::= "x"', '\\"\n', '\ud800', '😀', "'; #", '$ref']) {
      expect(lowerSpec(schemaSpec(schema(text)))).toBe(plain);
    }
  });
});
