/** How the models of the packs talk, as directories and as GGUF files, whose template and tokens are in the metadata. */

import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { chooseFormat } from '../../src/chat/formats.ts';
import { openModel } from '../../src/models/open.ts';
import { familyOf } from '../../src/models/registry.ts';
import { TextService } from '../../src/tokenizer/text-service.ts';
import { type PackOptions, packAsGguf } from '../support/gguf-packs.ts';
import { writeGguf } from '../support/gguf-writer.ts';
import { packDirectory } from '../support/packs.ts';

const scratch = mkdtempSync(join(tmpdir(), 'coli-chats-'));
afterAll(() => rmSync(scratch, { recursive: true }));

/** Pack, format, whether it reasons aloud, tokens that end an answer, architecture in GGUF. */
const PACKS = [
  ['olmoe', 'json', false, ['|||IP_ADDRESS|||'], 'olmoe'],
  ['qwen3-moe', 'hermes', true, ['<|endoftext|>', '<|im_end|>'], 'qwen3moe'],
  ['qwen36', 'qwen-xml', true, ['<|endoftext|>', '<|im_end|>'], null],
  ['mixtral', 'json', false, ['</s>'], null],
  ['glm4-moe', 'glm', true, ['<|endoftext|>', '<|observation|>', '<|user|>'], 'glm4moe'],
  ['glm-moe-dsa', 'glm', true, ['<|endoftext|>', '<|observation|>', '<|user|>'], null],
  ['minimax-m2', 'minimax', true, ['[e~['], 'minimax-m2'],
  ['gpt-oss', 'harmony', true, ['<|call|>', '<|endoftext|>', '<|return|>'], 'gpt-oss'],
  ['deepseek-v2-lite', 'json', false, ['<｜end▁of▁sentence｜>'], 'deepseek2'],
  // the template shows calls, but takes no tools
  ['deepseek-v3', 'json', true, ['<｜end▁of▁sentence｜>'], 'deepseek2'],
] as const;

async function chatOf(model: string) {
  const family = familyOf(openModel(model).config);
  const { controlStrings, chat } = family;
  const service = await TextService.open(model, { controlStrings, stopTokens: chat.stopTokens });
  const { info, tokenBytes } = service;
  await service.close();
  const format = chooseFormat({ ...info, chat });
  const spelled = (id: number) =>
    Buffer.from(tokenBytes.bytes.subarray(tokenBytes.offsets[id], tokenBytes.offsets[id + 1])).toString();
  const config = family.eosIds(family.parseConfig(openModel(model).config));
  const stopTokens = [...new Set([...info.endOfTurnIds, ...config])].map(spelled).sort();
  return { name: format.name, reasons: format.reasoning !== null, stopTokens };
}

test.each(PACKS)('%s: its format, and the tokens that end an answer', async (pack, name, reasons, stopTokens) => {
  expect(await chatOf(packDirectory(pack))).toEqual({ name, reasons, stopTokens });
});

test.each(PACKS.filter(([, , , , architecture]) => architecture !== null))(
  '%s: the same as a GGUF file',
  async (pack, name, reasons, stops, architecture) => {
    // the pack has digits in groups of up to three, which is not what the name of its pre-tokenizer stands for
    const options: PackOptions =
      pack === 'minimax-m2' ? { metadata: [['tokenizer.ggml.pre', ['string', 'glm4']]] } : {};
    const path = writeGguf(join(scratch, `${pack}.gguf`), packAsGguf(packDirectory(pack), architecture!, options));
    const chat = await chatOf(path);
    expect(chat).toMatchObject({ name, reasons });
    expect(chat.stopTokens).toEqual(expect.arrayContaining([...stops]));
  },
);

test('docs/chat-formats.md tells what the families say', () => {
  const text = readFileSync(new URL('../../docs/chat-formats.md', import.meta.url), 'utf8');
  const rows = text.split('\n').filter(line => line.startsWith('| `'));
  let above = '';
  for (const [pack] of PACKS) {
    const { modelType, chat } = familyOf(openModel(packDirectory(pack)).config);
    const row = rows.find(
      line => line.split('|')[1].includes(`\`${modelType}\``) && line.includes(`\`${chat.format ?? 'json'}\``),
    );
    expect(row, modelType).toBeDefined();
    const known = row!.includes('the same') ? row + above : row!;
    for (const token of chat.stopTokens) expect(known, modelType).toContain(`\`${token}\``);
    if (chat.thinking.variable !== null) expect(row).toContain(`\`${chat.thinking.variable}\``);
    above = row!;
  }
});
