/**
 * Generates a long answer in a process of its own and prints, as one JSON line, what the process held on the way. Argument: a JSON
 * file of engine options, tokens, and how often to look.
 */

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import type { EngineOptions } from '../../src/engine/api.ts';
import { openEngine } from '../../src/engine/engine.ts';

export interface LongRun {
  readonly options: EngineOptions;
  readonly tokens: number;
  readonly every: number;
}

export interface LongRunSample {
  readonly tokens: number;
  readonly rssBytes: number;
  readonly handles: number;
  readonly threads: number;
}

export interface LongRunReport {
  readonly samples: readonly LongRunSample[];
  readonly digest: string;
  readonly planBytes: number;
  /** Planned for the keys and values of one token. */
  readonly kvBytesPerToken: number;
  readonly maxRssBytes: number;
  readonly hits: number;
  readonly requests: number;
  readonly directIo: boolean;
}

function look(tokens: number): LongRunSample {
  return {
    tokens,
    rssBytes: process.memoryUsage.rss(),
    handles: readdirSync('/proc/self/fd').length,
    threads: readdirSync('/proc/self/task').length,
  };
}

const { options, tokens, every }: LongRun = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const engine = await openEngine(options);
const samples: LongRunSample[] = [];
let count = 0;
const request = {
  prompt: { text: 'What does grep do?' },
  maxTokens: tokens,
  temperature: 0.9,
  seed: 7,
  ignoreEos: true,
};
for await (const event of engine.generate(request)) {
  if (event.type === 'token' && ++count % every === 0) samples.push(look(count));
  if (event.type !== 'end') continue;
  const report: LongRunReport = {
    samples,
    digest: createHash('sha256').update(JSON.stringify(event.tokenIds)).digest('hex'),
    planBytes: engine.info.plan.total,
    kvBytesPerToken: engine.info.plan.kv / engine.info.context,
    maxRssBytes: process.resourceUsage().maxRSS * 1024,
    hits: event.stats.expert_hits,
    requests: event.stats.expert_requests,
    directIo: engine.info.directIo,
  };
  console.log(JSON.stringify(report));
}
await engine.close();
