/** Random schemas of the supported part, and random answers under the masks: all of them valid. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { JsonSchema } from './api.ts';
import { refusal, sampleValid, schemaSpec } from './test-support.ts';

/** Schemas of the supported part, a few levels deep. */
const schemas: fc.Arbitrary<JsonSchema> = fc.letrec<{ schema: JsonSchema }>(tie => {
  const inner = tie('schema');
  const name = fc.constantFrom('a', 'b', 'ab', 'é"\\', '');
  const bound = fc.integer({ min: -1200, max: 1200 });
  const decimal = fc.tuple(fc.integer({ min: -50, max: 50 }), fc.constantFrom(1, 10, 1000)).map(([a, b]) => a / b);
  const range = (low: number, high: number) =>
    fc.tuple(fc.nat({ max: high }), fc.nat({ max: high })).map(([a, b]) => [Math.min(a, b), Math.max(a, b, low)]);
  return {
    schema: fc.oneof(
      { maxDepth: 3, depthSize: 'small' },
      fc.constantFrom<JsonSchema>(
        true,
        {},
        { type: 'null' },
        { type: 'boolean' },
        { type: ['integer', 'null'] },
        { type: 'string' },
        { enum: ['x', 1, null, { a: [1] }, 'é"'] },
        { const: 'fixed' },
        { type: 'string', pattern: '^[a-c]{2,3}("|\\\\)?$' },
        { type: 'string', pattern: '\\d-[^\\n]|é' },
      ),
      range(0, 70).map(([minLength, maxLength]) => ({ type: 'string', minLength, maxLength })),
      fc.tuple(bound, bound).map(([a, b]) => ({ type: 'integer', minimum: Math.min(a, b), maximum: Math.max(a, b) })),
      fc
        .tuple(decimal, decimal)
        .map(([a, b]) => ({ type: 'number', minimum: Math.min(a, b), maximum: Math.max(a, b) })),
      decimal.map(exclusiveMinimum => ({
        type: 'number',
        exclusiveMinimum,
        exclusiveMaximum: exclusiveMinimum + 0.37,
      })),
      fc
        .tuple(inner, range(0, 4))
        .map(([items, [minItems, maxItems]]) => ({ type: 'array', items, minItems, maxItems })),
      fc
        .array(inner, { minLength: 1, maxLength: 3 })
        .map(prefixItems => ({ type: 'array', prefixItems, items: false })),
      fc
        .record({
          properties: fc.dictionary(name, inner, { maxKeys: 4 }),
          required: fc.uniqueArray(name, { maxLength: 2 }),
          additionalProperties: fc.option(inner, { nil: undefined }),
        })
        .map(({ additionalProperties, ...rest }) => ({
          type: 'object',
          ...rest,
          ...(additionalProperties === undefined ? {} : { additionalProperties }),
        })),
      fc.array(inner, { minLength: 1, maxLength: 3 }).map(anyOf => ({ anyOf })),
      fc.array(inner, { minLength: 1, maxLength: 2 }).map(allOf => ({ allOf })),
    ) as fc.Arbitrary<JsonSchema>,
  };
}).schema;

it('lets through only valid answers, whatever the schema', async () => {
  let ended = 0;
  let refused = 0;
  await fc.assert(
    fc.asyncProperty(schemas, async schema => {
      const error = refusal(schemaSpec(schema));
      if (error) {
        // Two patterns at once, or nothing that is valid.
        expect(['UNSATISFIABLE', 'UNSUPPORTED_SCHEMA']).toContain(error.code);
        refused++;
      } else ended += (await sampleValid(schema, 3)).length;
    }),
    { numRuns: 150, seed: 20 },
  );
  expect(ended).toBeGreaterThan(250);
  expect(refused).toBeLessThan(50);
});
