// Waits until the server that writes the given log is ready, and asks it for an answer of a certain form.

import { readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';

const log = () => readFileSync(process.argv[2], 'utf8');
const deadline = Date.now() + 60_000;
while (!log().includes('Ready:')) {
  if (Date.now() > deadline) throw new Error(`the server is not ready:\n${log()}`);
  await setTimeout(100);
}
const url = /http:\/\/127\.0\.0\.1:\d+/.exec(log())[0];
const body = {
  messages: [{ role: 'user', content: 'Do you know grep?' }],
  seed: 1,
  max_tokens: 40,
  regex: '(yes|no), [a-z]{3}',
};
const headers = { 'content-type': 'application/json' };
const reply = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body: JSON.stringify(body) });
const { choices } = await reply.json();
console.log(`--- answer\n${choices?.[0].message.content}\n---`);
if (!/^(yes|no), [a-z]{3}$/.test(choices[0].message.content)) throw new Error('the answer has not the required form');
