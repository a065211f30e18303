/** `node test/support/record-nano.ts`: writes test/fixtures/data/nano/recorded.json with the reference kernels. Slow. */

import { writeFileSync } from 'node:fs';
import { ask, containerHash, measureText, RECORD_FILE, type Recorded, withNano } from './nano.ts';

const QUESTIONS = [
  'What is the capital of France?',
  'What does grep do?',
  'What is 12 + 34?',
  'Raccontami una storia',
  'Write a Python function that adds two numbers.',
];
const TEXTS = ['chat_facts_en', 'chat_small_it', 'literature', 'tech_en'];

const recorded = await withNano({ kernels: 'reference' }, async (engine): Promise<Recorded> => {
  const chats = [];
  for (const question of QUESTIONS) {
    const { promptIds, end } = await ask(engine, question);
    chats.push({ question, prompt_ids: promptIds, token_ids: end.tokenIds, text: end.text });
  }
  const texts = [];
  for (const name of TEXTS) {
    const { predictedTokens, nll, ppl } = await measureText(engine, name);
    texts.push({ name, predicted_tokens: predictedTokens, nll, ppl: ppl.toFixed(6) });
  }
  return { container: containerHash(), chats, texts };
});

const lines = (items: readonly unknown[]) => items.map(item => `    ${JSON.stringify(item)}`).join(',\n');
writeFileSync(
  RECORD_FILE,
  `{\n  "container": "${recorded.container}",\n  "chats": [\n${lines(recorded.chats)}\n  ],\n` +
    `  "texts": [\n${lines(recorded.texts)}\n  ]\n}\n`,
);
