/** Tokens per second of greedy streams side by side, and how often experts were read for them compared with one after the other. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { startServe } from './serve-child.ts';
import { type Outcome, ServeClient } from './serve-client.ts';
import { growth, type Metrics, meanBatch, parseMetrics } from './serve-metrics.ts';

const NANO = fileURLToPath(new URL('../models/nano', import.meta.url));
const PROMPT_TOKENS = 12;

export interface StreamOptions {
  /** For the server. */
  readonly flags: readonly string[];
  readonly counts: readonly number[];
  readonly slots: number;
  readonly tokens: number;
  readonly share: number | undefined;
  readonly model: string | undefined;
}

export interface StreamRow {
  readonly streams: number;
  readonly tokensPerSecond: number;
  /** Mean over the streams. */
  readonly perStream: number;
  readonly meanBatch: number;
  /** Experts asked of the cache, and bytes read, as parts of the sum of the same streams alone. */
  readonly requestShare: number;
  readonly readShare: number;
  readonly readBytes: number;
  readonly sameText: boolean;
}

interface Series {
  readonly outcomes: readonly Outcome[];
  readonly seconds: number;
  readonly requests: number;
  readonly readBytes: number;
  readonly meanBatch: number;
}

export async function measureStreams(options: StreamOptions): Promise<StreamRow[]> {
  const { flags, counts, slots, tokens, share, model = NANO } = options;
  const config = JSON.parse(readFileSync(join(model, 'config.json'), 'utf8'));
  const experts = config.num_hidden_layers * config.num_experts;
  const expertFlags = share === undefined ? [] : ['--expert-slots', String(Math.round(experts * share))];
  const server = await startServe([...flags, ...expertFlags, '--slots', String(slots)]);
  try {
    const most = Math.max(...counts);
    const bodies = Array.from({ length: most }, (_, i) => bodyOf(i, tokens, config));
    // prompts are computed once, so that what is measured is answers
    for (const body of bodies) await series(server.port, [body.prime]);
    const alone: Series[] = [];
    for (const body of bodies) alone.push(await series(server.port, [body.ask]));
    const rows: StreamRow[] = [];
    for (const streams of counts) {
      const asks = bodies.slice(0, streams).map(body => body.ask);
      rows.push(rowOf(await series(server.port, asks), alone.slice(0, streams)));
    }
    return rows;
  } finally {
    await server.stop();
  }
}

function bodyOf(stream: number, tokens: number, config: { vocab_size: number; eos_token_id?: number | number[] }) {
  const prompt = Array.from(
    { length: PROMPT_TOKENS },
    (_, i) => 100 + ((i * 37 + stream * 911) % (config.vocab_size - 200)),
  );
  const stops = [config.eos_token_id ?? []].flat();
  const common = { prompt, temperature: 0, stream: true, stream_options: { include_usage: true } };
  const logit_bias = Object.fromEntries(stops.map(id => [id, -100]));
  return {
    ask: JSON.stringify({ ...common, logit_bias, max_tokens: tokens }),
    prime: JSON.stringify({ ...common, max_tokens: 1 }),
  };
}

/** Runs streams together. Throws for one that fails. */
async function series(port: number, bodies: readonly string[]): Promise<Series> {
  const clients = bodies.map((_, i) => new ServeClient(port, `stream ${i}`));
  const metrics = async (): Promise<Metrics> => parseMetrics(await clients[0].get('/metrics'));
  const before = await metrics();
  const begun = performance.now();
  const outcomes = await Promise.all(
    clients.map((client, i) => client.ask({ kind: 'stream', api: 'completions', stream: true, body: bodies[i] })),
  );
  const seconds = (performance.now() - begun) / 1000;
  const after = await metrics();
  for (const client of clients) client.close();
  const failed = outcomes.find(outcome => outcome.problem !== null);
  if (failed) throw new Error(failed.problem!);
  return {
    outcomes,
    seconds,
    requests: growth(before, after, 'coli_engine_expert_requests_total'),
    readBytes: growth(before, after, 'coli_engine_read_bytes_total'),
    meanBatch: meanBatch(before, after),
  };
}

function rowOf(together: Series, alone: readonly Series[]): StreamRow {
  const { outcomes, seconds, requests, readBytes } = together;
  const sum = (pick: (one: Series) => number) => alone.reduce((total, one) => total + pick(one), 0);
  const speeds = outcomes.map(({ tokens, ms }) => tokens / (ms / 1000));
  return {
    streams: outcomes.length,
    tokensPerSecond: outcomes.reduce((total, { tokens }) => total + tokens, 0) / seconds,
    perStream: speeds.reduce((total, speed) => total + speed, 0) / speeds.length,
    meanBatch: together.meanBatch,
    requestShare: requests / sum(one => one.requests),
    readShare:
      readBytes /
      Math.max(
        1,
        sum(one => one.readBytes),
      ),
    readBytes,
    sameText: outcomes.every((outcome, i) => outcome.text === alone[i].outcomes[0].text),
  };
}

export function printStreams(machine: string, rows: readonly StreamRow[]): void {
  console.log(machine);
  console.log('streams   tok/s   each   batch   experts asked   bytes read   GB read   same text');
  for (const row of rows) {
    const percent = (share: number) => `${(share * 100).toFixed(0)} %`;
    const cells = [
      String(row.streams).padStart(7),
      row.tokensPerSecond.toFixed(1).padStart(8),
      row.perStream.toFixed(1).padStart(7),
      row.meanBatch.toFixed(2).padStart(8),
      percent(row.requestShare).padStart(16),
      percent(row.readShare).padStart(13),
      (row.readBytes / 1e9).toFixed(2).padStart(10),
      String(row.sameText).padStart(12),
    ];
    console.log(cells.join(''));
  }
}
