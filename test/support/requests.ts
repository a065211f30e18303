/**
 * Child process: one engine, several generations. Prints the highest resident set after each, and the plan's total.
 * Argument: a JSON file, {options, requests: [{text, maxTokens}]}.
 */

import { readFileSync } from 'node:fs';
import { openEngine } from '../../src/engine/engine.ts';
import { highWaterMark } from './memory.ts';

const { options, requests } = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const engine = await openEngine(options);
const maxRssBytes: number[] = [];
let tokens = 0;
for (const { text, maxTokens } of requests) {
  for await (const event of engine.generate({ prompt: { text }, maxTokens, ignoreEos: true, seed: 1 })) {
    if (event.type === 'end') tokens += event.stats.prefill_tokens + event.stats.decode_tokens;
  }
  maxRssBytes.push(highWaterMark('self'));
}
const { total } = engine.info.plan;
await engine.close();
console.log(JSON.stringify({ maxRssBytes, tokens, total }));
