import { hash } from 'node:crypto';
import { expect, test } from 'vitest';
import { Usage } from './heat.ts';
import { decodeUsage, encodeUsage } from './usage-bytes.ts';

const OWNER = { identity: 'ab'.repeat(32), shape: { layers: 2, experts: 3, topK: 1 } };

function example(): Usage {
  const usage = new Usage(OWNER.shape);
  usage.leaseBegins(0, Int32Array.of(0, 2), Int32Array.of(5, 2), 2);
  usage.leaseBegins(1, Int32Array.of(1), Int32Array.of(7), 1);
  usage.leaseBegins(0, Int32Array.of(2), Int32Array.of(1), 1);
  return usage;
}

/** The digest made right again, so that what is behind it is looked at. */
function signed(bytes: Buffer): Buffer {
  const digest = hash('sha256', Buffer.concat([bytes.subarray(0, 96), bytes.subarray(128)]), 'buffer');
  digest.copy(bytes, 96);
  return bytes;
}

test('what is written is read again', () => {
  const usage = example();
  const read = decodeUsage(encodeUsage(usage, OWNER.identity), OWNER);
  if (read.kind !== 'whole') throw new Error(read.why);
  expect(read.usage.tokens).toBe(8);
  expect(read.usage.counts).toEqual(usage.counts);
  for (let i = 0; i < usage.size; i++) {
    expect(read.usage.heat(i)).toBeCloseTo(usage.heat(i), 4);
    expect(read.usage.age(i)).toBe(usage.age(i));
  }
});

test('counts beyond the field stop at its end', () => {
  const usage = example();
  usage.set(0, 2 ** 40, 1e30, 2 ** 50);
  const read = decodeUsage(encodeUsage(usage, OWNER.identity), OWNER);
  expect(read.kind === 'whole' && read.usage.counts[0]).toBe(0xffff_ffff);
});

/** A change of a number is signed anew. */
test.each<[string, (bytes: Buffer) => Buffer | number, string, RegExp]>([
  ['empty', () => Buffer.alloc(0), 'damaged', /is empty/],
  ['a text', () => Buffer.from('{"version": 1}'), 'foreign', /no history/],
  ['cut in the header', b => b.subarray(0, 60), 'damaged', /incomplete/],
  ['cut in the entries', b => b.subarray(0, b.length - 1), 'damaged', /incomplete/],
  ['too long', b => Buffer.concat([b, Buffer.alloc(1)]), 'damaged', /incomplete/],
  ['another version', b => b.writeUInt32LE(2, 16), 'foreign', /version 2/],
  ['another model', b => b.writeUInt8(1, 40), 'foreign', /another model/],
  ['other layers', b => b.writeUInt32LE(4_000_000_000, 20), 'foreign', /4000000000 layers/],
  ['other experts', b => b.writeUInt32LE(4, 24), 'foreign', /of 4 experts/],
  ['a turned bit', b => Buffer.concat([b.subarray(0, 130), Buffer.of(b[130] ^ 1), b.subarray(131)]), 'damaged', /hash/],
  ['heat that is no number', b => b.writeFloatLE(Number.NaN, 132), 'damaged', /cannot be/],
  ['endless heat', b => b.writeFloatLE(Number.POSITIVE_INFINITY, 132), 'damaged', /cannot be/],
  ['negative heat', b => b.writeFloatLE(-1, 132), 'damaged', /cannot be/],
  ['endless tokens', b => b.writeDoubleLE(Number.POSITIVE_INFINITY, 64), 'damaged', /cannot be/],
  ['no tokens', b => b.writeDoubleLE(Number.NaN, 64), 'damaged', /cannot be/],
])('a file with %s is refused', (_what, change, kind, why) => {
  const bytes = encodeUsage(example(), OWNER.identity);
  const changed = change(bytes);
  const read = decodeUsage(Buffer.isBuffer(changed) ? changed : signed(bytes), OWNER);
  expect(read.kind).toBe(kind);
  expect(read.kind !== 'whole' && read.why).toMatch(why);
});
