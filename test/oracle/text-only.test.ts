/** A language model that was exported alone: other names and a flat config, the same bits. */

import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { readReference } from '../../src/eval/reference.ts';
import { packDirectory, scoreWith } from '../support/packs.ts';

/** A safetensors file with other names of its tensors, without those that get none. */
function renamed(bytes: Buffer, rename: (name: string) => string | null): Buffer {
  const headerBytes = Number(bytes.readBigUInt64LE());
  const header = JSON.parse(bytes.toString('utf8', 8, 8 + headerBytes)) as Record<
    string,
    { data_offsets: [number, number] }
  >;
  const parts: Buffer[] = [];
  let end = 0;
  const entries = Object.entries(header).flatMap(([name, entry]) => {
    const to = name === '__metadata__' ? null : rename(name);
    if (to === null) return [];
    const [from, until] = entry.data_offsets;
    parts.push(bytes.subarray(8 + headerBytes + from, 8 + headerBytes + until));
    end += until - from;
    return [[to, { ...entry, data_offsets: [end - (until - from), end] }]];
  });
  const text = Buffer.from(JSON.stringify(Object.fromEntries(entries)));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, ...parts]);
}

test('qwen3_5_moe_text gives the bits of qwen3_5_moe', async () => {
  const source = packDirectory('qwen36');
  const directory = mkdtempSync(join(tmpdir(), 'coli-text-only-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const { text_config: text } = JSON.parse(readFileSync(join(source, 'config.json'), 'utf8'));
  writeFileSync(join(directory, 'config.json'), JSON.stringify({ ...text, architectures: ['Qwen3_5MoeForCausalLM'] }));
  const shards = readdirSync(source).filter(name => /^model-.*\.safetensors$/.test(name));
  const rename = (name: string) =>
    /^(?:model\.visual|mtp)\./.test(name) ? null : name.replace(/^model\.language_model\./, 'model.');
  for (const shard of shards) {
    writeFileSync(join(directory, shard), renamed(readFileSync(join(source, shard)), rename));
  }
  const { inputIds: ids } = readReference(source, 4);
  const run = (model: string) => scoreWith({ model, context: 128 }, { ids, logits: true });
  const got = await run(directory);
  expect(got.logits).toEqual((await run(source)).logits);
});
