/** Every reference pack as a user has it: one chat by `coli run` and one by `coli serve`, which must say the same. */

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { familyOf } from '../../src/models/registry.ts';
import { Tokenizer } from '../../src/tokenizer/tokenizer.ts';
import { ALL_PACKS, packDirectory } from '../support/packs.ts';
import { startServe } from '../support/serve.ts';

const TOKENS = 8;
const QUESTION = 'Hello, who are you?';
const TIMEOUT_MS = 60_000;

const readJson = (file: string) => JSON.parse(readFileSync(file, 'utf8'));

function run(model: string) {
  const flags = ['--max-tokens', `${TOKENS}`, '--temperature', '0', '--ram', '1G', '--threads', '1', '--json'];
  const options = { encoding: 'utf8', env: { ...process.env, NO_COLOR: '1' } } as const;
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ['bin/coli.js', 'run', '--model', model, ...flags, QUESTION],
    options,
  );
  expect(status, stderr).toBe(0);
  return JSON.parse(stdout);
}

/** Ids that end an answer: those of the config files and those of the family's chats. */
function stopIds(model: string): number[] {
  const config = readJson(path.join(model, 'config.json'));
  const family = familyOf(config);
  const tokenizer = Tokenizer.load(model);
  const tokens = family.chat.stopTokens.map(token => tokenizer.idOf(token));
  const generation = [readJson(path.join(model, 'generation_config.json')).eos_token_id].flat();
  return [...new Set([...family.eosIds(family.parseConfig(config)), ...generation, ...tokens])];
}

/** How a prompt ends, or what it says, with thinking on and off. */
const SWITCHES: readonly (readonly [packs: RegExp, on: RegExp, off: RegExp])[] = [
  [/^qwen3-moe/, /assistant\n$/, /<think>\n\n<\/think>\n\n$/],
  [/^qwen36/, /<think>\n$/, /<think>\n\n<\/think>\n\n$/],
  [/^glm4-moe/, /<\|assistant\|>$/, /\/nothink<\|assistant\|>\n<think><\/think>$/],
  [/^glm-moe-dsa/, /Effort: Max.*<think>$/s, /^(?!.*Effort).*<think><\/think>$/s],
  [/^minimax-m2/, /<think>\n$/, /<think>\n$/],
  [/^gpt-oss/, /Reasoning: medium/, /Reasoning: low/],
  [/^deepseek-v3/, /<think>$/, /<\/think>$/],
];

describe.each(ALL_PACKS)('$name', ({ name }) => {
  const model = packDirectory(name);

  test('run and serve say the same, and end at every stop id', { timeout: TIMEOUT_MS }, async () => {
    const told = run(model);
    const server = await startServe({ model });
    const chat = { messages: [{ role: 'user', content: QUESTION }], max_tokens: TOKENS, temperature: 0 };
    const { status, text, body } = await server.post('/v1/chat/completions', chat);
    expect(status, text).toBe(200);
    const [{ message, finish_reason }] = body.choices;
    expect([message.content, message.reasoning_content ?? '']).toEqual([told.text, told.reasoning ?? '']);
    expect([finish_reason, body.usage.prompt_tokens]).toEqual([told.finish_reason, told.prompt_ids.length]);
    expect(body.usage.completion_tokens).toBe(told.token_ids.length);

    const ids = stopIds(model);
    expect(ids.length).toBeGreaterThan(0);
    for (const id of ids) {
      const stopped = (await server.post('/v1/chat/completions', { ...chat, logit_bias: { [id]: 100 } })).body;
      const { finish_reason: finish, message: last } = stopped.choices[0];
      expect([finish, last.content, stopped.usage.completion_tokens], `id ${id}`).toEqual(['stop', '', 1]);
    }

    const [, on, off] = SWITCHES.find(([packs]) => packs.test(name)) ?? [];
    const prompt = async (more: object) => (await server.post('/apply-template', { ...chat, ...more })).body.prompt;
    if (on) expect(await prompt({ enable_thinking: true })).toMatch(on);
    if (off) {
      expect(await prompt({ chat_template_kwargs: { thinking: false } })).toMatch(off);
      expect(await prompt({ reasoning_effort: 'none' })).toMatch(off);
    }
    expect((await server.stop()).code).toBe(0);
  });
});
