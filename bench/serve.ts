/**
 * `serve`: a real `coli serve` under load. Clients ask at random and go away at random, others send prompts of 1 MB and schemas
 * that mean harm, one hardly reads; /health is asked all the while from another thread. The exit code is 1 when anything came
 * back that should not, or memory or the processor did not come to rest. With --streams the speed of streams side by side.
 */

import { parseArgs } from 'node:util';
import { UsageError } from '../src/common/errors.ts';
import { MIB } from '../src/common/units.ts';
import { memoryOf, othersClock, processorSeconds, type ServeProcess, startServe } from './serve-child.ts';
import { type Outcome, ServeClient } from './serve-client.ts';
import { type LoadResult, runLoad } from './serve-load.ts';
import { growth, type Metrics, meanBatch, parseMetrics, quantile } from './serve-metrics.ts';
import { bodyOf } from './serve-mix.ts';
import { measureStreams, printStreams } from './serve-streams.ts';
import { startWatch } from './serve-watch.ts';
import type { WatchReport } from './serve-watcher.ts';
import { machineLine } from './subject.ts';

const HELP = `options:
  --model DIR      model to serve (default: the bundled one)
  --clients N      everyday clients (32)
  --seconds N      how long they ask (60)
  --warm N         seconds of the same load before anything is measured (10)
  --slots N        sessions of the server (4; with --streams 8)
  --slow N         readers of one byte per second (1)
  --short N        short requests one after the other, behind the load (500)
  --no-hostile     no schemas and grammars that mean harm
  --streams LIST   instead of the load: tokens per second of so many streams side by side, such as 1,2,4,8
  --tokens N       tokens of each of these streams (128)
  --share X        with --streams: slots for this share of the experts (default: as many as fit)
  --server-flag F  a further flag for the server; may be repeated
  --node-flag F    a flag for its Node, such as --cpu-prof; may be repeated
  --json`;

/** The memory of the process may end so much above where it began. */
const MAX_GROWTH = 0.05;
const MAX_HEALTH_MS = 50;
const MAX_IDLE_PROCESSOR = 0.05;
/** For the server to come to rest, before memory is compared. */
const REST_MS = 5000;
const IDLE_MS = 3000;
/** Clients with huge prompts and hostile forms pause between requests, or they would be the whole load. */
const PAUSE_MS = 100;

const rest = (ms: number) => new Promise(resolve => setTimeout(resolve, ms));

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    allowNegative: true,
    options: {
      model: { type: 'string' },
      clients: { type: 'string', default: '32' },
      seconds: { type: 'string', default: '60' },
      warm: { type: 'string', default: '10' },
      slots: { type: 'string' },
      slow: { type: 'string', default: '1' },
      short: { type: 'string', default: '500' },
      hostile: { type: 'boolean', default: true },
      streams: { type: 'string' },
      tokens: { type: 'string', default: '128' },
      share: { type: 'string' },
      'server-flag': { type: 'string', multiple: true, default: [] },
      'node-flag': { type: 'string', multiple: true, default: [] },
      json: { type: 'boolean' },
      help: { type: 'boolean' },
    },
  });
  if (values.help) throw new UsageError('HELP', HELP);
  const flags = [...(values.model ? ['--model', values.model] : []), ...values['server-flag']];
  if (values.streams) {
    const counts = values.streams.split(',').map(Number);
    const share = values.share === undefined ? undefined : Number(values.share);
    const slots = Number(values.slots ?? 8);
    const rows = await measureStreams({
      flags,
      counts,
      slots,
      share,
      model: values.model,
      tokens: Number(values.tokens),
    });
    if (values.json) console.log(JSON.stringify({ machine: machineLine(), rows }));
    else printStreams(machineLine(), rows);
    return;
  }
  const server = await startServe([...flags, '--slots', values.slots ?? '4'], values['node-flag']);
  let code: number | string = 'never asked to stop';
  try {
    const report = await measure(server, {
      clients: Number(values.clients),
      seconds: Number(values.seconds),
      warm: Number(values.warm),
      slow: Number(values.slow),
      short: Number(values.short),
      hostile: values.hostile,
    });
    code = await server.stop();
    if (code !== 0) report.problems.push(`the server ended with ${code}`);
    if (values.json) console.log(JSON.stringify({ machine: machineLine(), ...report }));
    else print(report);
    if (report.problems.length > 0) process.exitCode = 1;
  } finally {
    if (code === 'never asked to stop') await server.stop();
  }
}

interface Settings {
  readonly clients: number;
  readonly seconds: number;
  readonly warm: number;
  readonly slow: number;
  readonly short: number;
  readonly hostile: boolean;
}

type Report = Awaited<ReturnType<typeof measure>>;

async function measure(server: ServeProcess, settings: Settings) {
  const { port, pid } = server;
  const client = new ServeClient(port, 'bench');
  const metrics = async () => parseMetrics(await client.get('/metrics'));
  const props = JSON.parse(await client.get('/props'));
  const before = await greedy(client);
  await fillSessions(port, props);
  await rest(IDLE_MS);
  const cold = memoryOf(pid).rssBytes;
  await loadFor(port, settings.warm, settings);
  await rest(REST_MS);
  const start = memoryOf(pid).rssBytes;
  const first = await metrics();

  const watch = await startWatch(port, pid);
  const others = othersClock([pid, process.pid]);
  const load = await loadFor(port, settings.seconds, settings);
  const othersShare = others();
  const watched = await watch.stop();

  const restMs = await untilIdle(metrics);
  const last = await metrics();
  await rest(REST_MS);
  const after = memoryOf(pid).rssBytes;
  const spent = processorSeconds(pid);
  await rest(IDLE_MS);
  const idleProcessor = (processorSeconds(pid) - spent) / (IDLE_MS / 1000);
  const short = await shortRequests(client, pid, settings.short);
  const answer = await greedy(client);
  client.close();

  // garbage of the load is collected when there is work again
  const end = short.at(-1)!;
  const memory = {
    plannedBytes: props.planned_bytes as number,
    peakBytes: memoryOf(pid).peakBytes,
    coldBytes: cold,
    startBytes: start,
    loadPeakBytes: watched.peakRssBytes,
    afterBytes: after,
    shortBytes: short,
  };
  const report = {
    clients: settings.clients,
    slots: props.total_slots as number,
    seconds: load.seconds,
    ...summary(load, first, last),
    ...delays(watched),
    memory,
    restMs,
    idleProcessor,
    othersShare,
    problems: [...load.problems, ...watched.problems, ...server.complaints.filter(isFault)],
  };
  const wrong: [boolean, string][] = [
    [memory.peakBytes > memory.plannedBytes, 'the process was larger than its plan'],
    [end > start * (1 + MAX_GROWTH), `memory grew by ${((end / start - 1) * 100).toFixed(1)} %`],
    [end > short[0] * (1 + MAX_GROWTH), 'memory grew with short requests'],
    [report.health.p99 > MAX_HEALTH_MS, `p99 of /health is ${report.health.p99.toFixed(1)} ms`],
    [idleProcessor > MAX_IDLE_PROCESSOR, `${(idleProcessor * 100).toFixed(0)} % of a processor at rest`],
    [answer !== before, 'the same question has another answer than before the load'],
  ];
  report.problems.push(...wrong.filter(([is]) => is).map(([, what]) => what));
  return report;
}

function loadFor(port: number, seconds: number, { clients, hostile, slow }: Settings): Promise<LoadResult> {
  const end = performance.now() + seconds * 1000;
  const goesOn = () => performance.now() < end;
  return runLoad(port, { clients, goesOn, pauseMs: PAUSE_MS, huge: true, hostile, slowReaders: slow });
}

const isFault = (line: string) => !line.startsWith('{') || JSON.parse(line).level >= 50;

async function greedy(client: ServeClient): Promise<string> {
  const body = bodyOf('chat', 'Raccontami una storia', 48, { temperature: 0 });
  return (await client.ask({ kind: 'greedy', api: 'chat', stream: false, body })).text;
}

/** All sessions at once to the end of their context: memory that belongs to the plan is then in use. */
async function fillSessions(port: number, props: { total_slots: number; context: number }): Promise<void> {
  const fill = async (i: number) => {
    const client = new ServeClient(port, `fill ${i}`);
    const prompt = Array.from({ length: props.context - 32 }, (_, at) => 100 + ((at * (i + 3)) % 1000));
    const body = JSON.stringify({ prompt, max_tokens: 32, temperature: 1, seed: i });
    await client.ask({ kind: 'fill', api: 'completions', stream: false, body });
    client.close();
  };
  for (let round = 0; round < 2; round++)
    await Promise.all(Array.from({ length: props.total_slots }, (_, i) => fill(i)));
}

/** Milliseconds until no request runs and the engine makes no more tokens. */
async function untilIdle(metrics: () => Promise<Metrics>): Promise<number> {
  const begun = performance.now();
  let before = await metrics();
  for (;;) {
    await rest(50);
    const now = await metrics();
    const works = now.get('coli_requests_active') !== 0 || growth(before, now, 'coli_engine_steps_total') > 0;
    if (!works || performance.now() - begun > 60_000) return performance.now() - begun;
    before = now;
  }
}

/** Memory behind every fifth of so many short requests. */
async function shortRequests(client: ServeClient, pid: number, count: number): Promise<number[]> {
  const rss: number[] = [];
  for (let i = 1; i <= count; i++) {
    const body = bodyOf('chat', `Number ${i}?`, 4, { temperature: 0 });
    await client.ask({ kind: 'short', api: 'chat', stream: false, body });
    if (i % Math.ceil(count / 5) === 0) rss.push(memoryOf(pid).rssBytes);
  }
  return rss.length > 0 ? rss : [memoryOf(pid).rssBytes];
}

function summary({ outcomes, seconds }: LoadResult, first: Metrics, last: Metrics) {
  const byKind = Map.groupBy(outcomes, outcome => outcome.kind);
  const requests = [...byKind].map(([kind, all]) => ({ kind, count: all.length, statuses: countStatuses(all) }));
  const firsts = outcomes.flatMap(outcome => outcome.firstMs ?? []);
  const tokens = growth(first, last, 'coli_engine_decode_tokens_total');
  const names = ['admitted', 'completed', 'rejected', 'timed_out', 'cancelled'];
  return {
    requests: requests.sort((a, b) => a.kind.localeCompare(b.kind)),
    tokensPerSecond: tokens / seconds,
    promptTokensPerSecond: growth(first, last, 'coli_engine_prompt_tokens_total') / seconds,
    meanBatch: meanBatch(first, last),
    firstMs: { p50: quantile(firsts, 0.5), p99: quantile(firsts, 0.99) },
    queue: Object.fromEntries(names.map(name => [name, growth(first, last, `coli_queue_${name}_total`)])),
  };
}

function countStatuses(outcomes: readonly Outcome[]): Record<string, number> {
  const statuses = outcomes.map(({ status, left }) => (left && status !== 'left' ? `${status}, left` : String(status)));
  return Object.fromEntries([...Map.groupBy(statuses, status => status)].map(([status, all]) => [status, all.length]));
}

function delays({ healthMs, loopDelayMs }: WatchReport) {
  const of = (values: readonly number[]) => ({
    p50: quantile(values, 0.5),
    p99: quantile(values, 0.99),
    max: quantile(values, 1),
  });
  return { health: { count: healthMs.length, ...of(healthMs) }, loopDelayMs: of(loopDelayMs) };
}

function print(report: Report): void {
  const { memory, health, loopDelayMs: loop, firstMs, queue } = report;
  const ms = (value: number) => `${value.toFixed(1)} ms`;
  const mib = (bytes: number) => `${(bytes / MIB).toFixed(0)} MiB`;
  console.log(`${machineLine()}; ${report.clients} clients, ${report.slots} slots, ${report.seconds.toFixed(0)} s`);
  for (const { kind, count, statuses } of report.requests) {
    const list = Object.entries(statuses).map(([status, n]) => `${n} x ${status}`);
    console.log(`  ${kind.padEnd(22)} ${String(count).padStart(6)}: ${list.join('; ')}`);
  }
  console.log(
    `queue: ${Object.entries(queue)
      .map(([name, n]) => `${name} ${n}`)
      .join(', ')}`,
  );
  console.log(
    `${report.tokensPerSecond.toFixed(0)} tok/s decoded and ${report.promptTokensPerSecond.toFixed(0)} of prompts, mean batch ` +
      `${report.meanBatch.toFixed(2)}; first piece p50 ${ms(firstMs.p50)}, p99 ${ms(firstMs.p99)}`,
  );
  console.log(`/health (${health.count}): p50 ${ms(health.p50)}, p99 ${ms(health.p99)}, max ${ms(health.max)}`);
  console.log(`main thread's delay, p99 of each second: median ${ms(loop.p50)}, highest ${ms(loop.max)}`);
  console.log(
    `RSS ${mib(memory.coldBytes)} with full sessions, ${mib(memory.startBytes)} before, ${mib(memory.loadPeakBytes)} at ` +
      `most, ${mib(memory.afterBytes)} at rest, then with short requests ${memory.shortBytes.map(mib).join(', ')}; ` +
      `VmHWM ${mib(memory.peakBytes)} of ${mib(memory.plannedBytes)} planned`,
  );
  console.log(
    `at rest ${report.restMs.toFixed(0)} ms after the last client, then ` +
      `${(report.idleProcessor * 100).toFixed(1)} % of a processor`,
  );
  console.log(`other programs used ${Math.max(0, report.othersShare * 100).toFixed(0)} % of the processors`);
  const tally = Map.groupBy(report.problems, problem => problem);
  console.log(`unexpected: ${report.problems.length}`);
  for (const [problem, all] of tally) console.log(`  ${all.length} x ${problem}`);
}
