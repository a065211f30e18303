/** Conversations rendered by the chat template of every pack, against what Python's jinja2 made of them (render_prompts.py). */

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { familyOf } from '../../src/models/registry.ts';
import { ChatEncoder } from '../../src/tokenizer/chat-encoder.ts';
import { ChatTemplate } from '../../src/tokenizer/chat-template.ts';
import { Tokenizer } from '../../src/tokenizer/tokenizer.ts';
import { readTokenizerFile } from '../../src/tokenizer/tokenizer-file.ts';
import { ALL_PACKS, packDirectory } from '../support/packs.ts';

interface Case {
  messages: unknown[];
  tools?: unknown[];
  variables?: Record<string, unknown>;
  add_generation_prompt?: boolean;
  continue_final?: boolean;
}

interface Golden {
  made_with: string;
  clock: [number, number, number, number, number, number];
  cases: Record<string, Case>;
  /** Per case the text, or what went wrong; or the name of the pack with the same template. */
  packs: Record<string, Texts | string>;
}

type Texts = Record<string, string | { error: string }>;

const readJson = (file: string | URL) => JSON.parse(readFileSync(file, 'utf8'));
const golden: Golden = readJson(new URL('prompts.json', import.meta.url));
const now = new Date(...golden.clock).getTime();

/** As the engine makes it. */
function load(name: string) {
  const directory = packDirectory(name);
  const file = readTokenizerFile(directory);
  const tokenizer = new Tokenizer(file);
  const { controlStrings } = familyOf(readJson(path.join(directory, 'config.json')));
  return { tokenizer, chat: new ChatEncoder(tokenizer, ChatTemplate.load(directory, file.config), controlStrings) };
}

function textsOf(pack: string): Texts {
  const own = golden.packs[pack];
  if (own === undefined) throw new Error(`no prompts for pack ${pack}: run python3 test/golden/render_prompts.py`);
  return typeof own === 'string' ? (golden.packs[own] as Texts) : own;
}

/** Where jinja2 fails at a missing text, or writes "None" for it, the engine takes it for an empty one. */
function withoutNone(texts: Texts, key: string): string | { error: string } {
  const text = texts[key];
  const isMade = typeof text === 'string' && !text.includes('None');
  return isMade || key !== 'a call without text' ? text : texts['a call and its result'];
}

test('every pack has its golden prompts', () => {
  expect(golden.made_with).toBe('jinja2 3.1.6');
  expect(Object.keys(golden.packs)).toEqual(expect.arrayContaining(ALL_PACKS.map(({ name }) => name)));
});

describe.each(ALL_PACKS)('$name', ({ name }) => {
  const { tokenizer, chat } = load(name);

  test.each(Object.keys(golden.cases))('%s', key => {
    const { messages, tools, variables, add_generation_prompt, continue_final } = golden.cases[key];
    const options = {
      variables,
      now,
      addGenerationPrompt: add_generation_prompt ?? true,
      continueFinal: continue_final ?? false,
    };
    const expected = withoutNone(textsOf(name), key);
    const { text, ids } = chat.render(messages, tools, options);
    expect(text).toBe(expected);
    // whose markers are spelled in a message has other ids on purpose
    if (!key.startsWith('markers')) expect(ids).toEqual(tokenizer.encode(text, { controlTokens: true }));
  });
});
