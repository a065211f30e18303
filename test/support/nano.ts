/** The bundled model and what the reference kernels made of it (test/fixtures/data/nano). */

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Engine, EngineOptions, GenerateEvent } from '../../src/engine/api.ts';
import { openEngine } from '../../src/engine/engine.ts';
import { evalPerplexity, type PerplexityReport } from '../../src/eval/perplexity.ts';
import { TEST_RAM_BYTES } from './packs.ts';

export const NANO = fileURLToPath(new URL('../../models/nano', import.meta.url));
export const RECORD_FILE = fileURLToPath(new URL('../fixtures/data/nano/recorded.json', import.meta.url));

export interface RecordedChat {
  readonly question: string;
  readonly prompt_ids: readonly number[];
  /** Greedy, up to and with the stop id. */
  readonly token_ids: readonly number[];
  readonly text: string;
}

export interface RecordedText {
  readonly name: string;
  readonly predicted_tokens: number;
  /** Nats per token; the very float64. */
  readonly nll: number;
  /** exp(nll), 6 digits after the point. */
  readonly ppl: string;
}

export interface Recorded {
  /** SHA-256 of coli.index.json, which holds the hash of every tensor. */
  readonly container: string;
  readonly chats: readonly RecordedChat[];
  readonly texts: readonly RecordedText[];
}

export function containerHash(): string {
  return createHash('sha256')
    .update(readFileSync(`${NANO}/coli.index.json`))
    .digest('hex');
}

export async function withNano<T>(options: Omit<EngineOptions, 'model'>, use: (engine: Engine) => Promise<T>) {
  const engine = await openEngine({ model: NANO, ram: TEST_RAM_BYTES, context: 512, ...options });
  try {
    return await use(engine);
  } finally {
    await engine.close();
  }
}

/** Asks greedily; gives the prompt's ids and the last event. */
export async function ask(engine: Engine, question: string, maxTokens = 48) {
  const prompt = { messages: [{ role: 'user', content: question }] };
  let end: Extract<GenerateEvent, { type: 'end' }> | undefined;
  let promptIds: number[] = [];
  for await (const event of engine.generate({ prompt, temperature: 0, maxTokens })) {
    if (event.type === 'start') promptIds = event.promptIds;
    if (event.type === 'end') end = event;
  }
  if (!end) throw new Error('no end event');
  return { promptIds, end };
}

export function measureText(engine: Engine, name: string): Promise<PerplexityReport> {
  const file = new URL(`../fixtures/data/nano/${name}.txt`, import.meta.url);
  return evalPerplexity(engine, readFileSync(file, 'utf8'));
}
