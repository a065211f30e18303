/** Random changes of config.json and of safetensors headers: a named refusal with a path, or a model that opens; never a crash. */

import fs from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ColiError, ConfigError, ModelFileError } from '../../src/common/errors.ts';
import { inspectModel } from '../../src/engine/describe.ts';
import { readModel } from '../../src/engine/model-files.ts';
import { Random } from '../../src/engine/random.ts';
import { familyOf } from '../../src/models/registry.ts';
import { placesOf, WRONG, withJson } from '../support/fields.ts';
import { TEST_RAM_BYTES } from '../support/packs.ts';
import { readShard, temporaryDirectory, writeShard } from './fixtures.ts';
import { FAMILY_PACKS, loose } from './pack-support.ts';

/** Lists of names of absurd length would show. */
const MEMORY_BYTES = 300e6;

const NUMBERS = [
  ...['0', '1', '2', '3', '5', '7', '15', '17', '31', '64', '128', '1024', '4095', '4097', '65536', '65537'],
  ...['16777216', '16777217', '2147483648', '4294967296', '1e15', '1e300', '1e-300', '0.1', '0.25', '-3'],
];
const OTHERS = ['[1]', '["x"]', '"yarn"', '"default"', '"full_attention"', JSON.stringify(Array(1500).fill(1))];
const VALUES = [...WRONG, ...NUMBERS, ...OTHERS];

/** What is wrong with how something is refused, or null. */
function problemOf(error: unknown): string | null {
  if (!(error instanceof ColiError)) return `thrown: ${(error as Error)?.stack ?? error}`;
  const { code, message, hint, details, name } = error;
  if (!/^[A-Z][A-Z0-9_]+$/.test(code) || !hint) return `no code or hint: ${message}`;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
  if (/[\u0000-\u001f\u007f]/.test(message) || message.length > 1200) return `unreadable: ${JSON.stringify(message)}`;
  if (name === 'InternalError') return `internal: ${message}`;
  if (code === 'BAD_CONFIG' && !details.path) return `no path: ${message}`;
  return null;
}

test.each(FAMILY_PACKS)('every field of the config of %s, with every wrong value', name => {
  const { config } = loose(name);
  const problems: string[] = [];
  let refused = 0;
  for (const place of placesOf(config)) {
    for (const value of VALUES) {
      const changed = JSON.parse(withJson(config, place, value));
      try {
        const family = familyOf(changed);
        family.shape(family.parseConfig(changed), { mtp: true });
      } catch (error) {
        refused++;
        const problem =
          error instanceof ConfigError ? problemOf(error) : `not a ConfigError: ${(error as Error)?.stack}`;
        if (problem) problems.push(`${place.join('.')} = ${value.slice(0, 40)}: ${problem}`);
      }
    }
  }
  expect(problems).toEqual([]);
  // far more than half of the fields that are looked at
  expect(refused).toBeGreaterThan(300);
});

test.each(FAMILY_PACKS)('several fields of the config of %s at once, up to the plan', name => {
  const pack = loose(name);
  const model = pack.writeHeaders(join(temporaryDirectory(), 'model'));
  const random = new Random(name.length * 1000 + name.charCodeAt(0));
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random.nextFloat64() * list.length)];
  const rss = process.memoryUsage.rss();
  const results = new Map<string, number>();
  for (let i = 0; i < 40; i++) {
    let config = pack.config;
    const changes: string[] = [];
    for (let n = 1 + Math.floor(random.nextFloat64() * 3); n > 0; n--) {
      const place = pick(placesOf(config));
      const value = pick(VALUES);
      changes.push(`${place.join('.')} = ${value.slice(0, 40)}`);
      config = JSON.parse(withJson(config, place, value));
    }
    fs.writeFileSync(join(model, 'config.json'), JSON.stringify(config));
    let result = 'accepted';
    try {
      inspectModel({ model, ram: TEST_RAM_BYTES, context: 64 });
    } catch (error) {
      expect(problemOf(error), changes.join(', ')).toBeNull();
      result = (error as ColiError).name;
    }
    results.set(result, (results.get(result) ?? 0) + 1);
  }
  expect(process.memoryUsage.rss() - rss).toBeLessThan(MEMORY_BYTES);
  expect(results.get('ConfigError') ?? 0).toBeGreaterThan(10);
});

test.each(FAMILY_PACKS)('headers of %s', name => {
  const pack = loose(name);
  const model = pack.writeHeaders(join(temporaryDirectory(), 'model'));
  const shard = join(model, 'model.safetensors');
  const { header, data } = readShard(shard);
  const text = JSON.stringify(header);
  const names = Object.keys(header);
  const random = new Random(name.length * 7919 + name.charCodeAt(1));
  const below = (n: number) => Math.floor(random.nextFloat64() * n);
  const rss = process.memoryUsage.rss();
  let refused = 0;
  for (let i = 0; i < 32; i++) {
    const entry = names[below(names.length)];
    const fields = ['dtype', 'shape', 'data_offsets'];
    const changes: (() => string)[] = [
      // a field of a tensor
      () => withJson(header, [entry, fields[below(3)]], VALUES[below(VALUES.length)]),
      // a number inside it
      () => withJson(header, [entry, fields[1 + below(2)], 0], VALUES[below(VALUES.length)]),
      // another type of the same name
      () => withJson(header, [entry, 'dtype'], JSON.stringify(['F32', 'U8', 'I8', 'F8_E4M3', 'BF16', 'F64'][below(6)])),
      // one tensor takes the place or the name of another
      () => withJson(header, [entry], JSON.stringify(header[names[below(names.length)]])),
      () => text.replace(JSON.stringify(entry), JSON.stringify(names[below(names.length)])),
      () =>
        text.replace(JSON.stringify(entry), JSON.stringify(`${entry}${['_scale', '.qs', 'x', '\u0000'][below(4)]}`)),
      // bytes that are cut out, doubled or turned around
      () => text.slice(0, below(text.length)) + text.slice(below(text.length)),
      () => text.replace(/\d+/, digits => digits + below(10)),
      () => text.replaceAll('BF16', 'F16'),
    ];
    const changed = changes[i % changes.length]();
    writeShard(shard, changed, data);
    try {
      readModel({ model });
    } catch (error) {
      refused++;
      expect(problemOf(error), changed.slice(0, 200)).toBeNull();
      if (error instanceof ModelFileError && error.code.startsWith('TENSOR_')) expect(error.message).toContain(model);
    }
  }
  expect(process.memoryUsage.rss() - rss).toBeLessThan(MEMORY_BYTES);
  expect(refused).toBeGreaterThan(18);
});
