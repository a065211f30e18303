/**
 * `decode`: tokens per second with slots for a share of the experts, beside what the disk and the arithmetic would allow.
 * The next token is given, not sampled, so that every run reads the same experts. Arithmetic is measured in the same run by
 * feeding one token again and again: all its experts then have slots.
 */

import { median } from '../src/common/median.ts';
import { formatBytes } from '../src/common/units.ts';
import { type ModelFiles, readModel } from '../src/engine/model-files.ts';
import { Runtime } from '../src/engine/runtime.ts';
import { Session } from '../src/engine/session.ts';
import { countersSince } from '../src/experts/counters.ts';
import { bracket, diskCeiling } from './bracket.ts';
import { engineOptions, machineLine, readSettings, type Settings, variedIds } from './subject.ts';

const PROMPT_TOKENS = 32;
/** Enough for the disk of any machine measured so far. */
const CEILING_DEPTH = 8;
const REPLAYS = 16;

interface DecodeRun {
  readonly tokensPerSecond: number;
  readonly hitRate: number;
  readonly missBytesPerToken: number;
  /** Share of all reads that a wrong guess of the look-ahead made. */
  readonly wastedShare: number;
  /** Seconds per token with all experts in memory. */
  readonly computeSeconds: number;
  readonly waitShare: number;
  /** Reads in flight while the disk was busy, bounded by readers. */
  readonly depth: number;
}

export async function run(args: string[]): Promise<void> {
  const settings = readSettings(args, { tokens: 64, share: 0.25 });
  const files = readModel(settings);
  const { info, measure, close } = await prepare(settings, files);
  const runs = await bracket(settings.runs, () => diskCeiling(files, CEILING_DEPTH), measure);
  const depth = Math.max(1, Math.round(median(runs.map(r => r.value.depth))));
  const atDepth = await diskCeiling(files, depth);
  await close();

  const rows = runs.map(({ value, before, after, accepted }) => {
    const disk = (before + after) / 2;
    const readSeconds = value.missBytesPerToken / disk;
    return {
      ...value,
      disk,
      accepted,
      phi: value.tokensPerSecond * Math.max(readSeconds, value.computeSeconds),
      phiSerial: value.tokensPerSecond * (readSeconds + value.computeSeconds),
      phiAtDepth: value.tokensPerSecond * Math.max(value.missBytesPerToken / atDepth, value.computeSeconds),
    };
  });
  const counted = rows.some(row => row.accepted) ? rows.filter(row => row.accepted) : rows;
  const middle = (pick: (row: (typeof rows)[number]) => number) => median(counted.map(pick));
  const report = {
    machine: machineLine(),
    model: settings.model,
    share: settings.share,
    expertSlots: info.plan.expertSlots,
    threads: info.threads,
    readers: info.readers,
    kernels: info.kernels,
    directIo: info.directIo,
    accepted: rows.filter(row => row.accepted).length,
    runs: rows,
    diskAtDepth: { depth, bytesPerSecond: atDepth },
    median: {
      tokensPerSecond: middle(r => r.tokensPerSecond),
      hitRate: middle(r => r.hitRate),
      missBytesPerToken: middle(r => r.missBytesPerToken),
      wastedShare: middle(r => r.wastedShare),
      diskBytesPerSecond: middle(r => r.disk),
      computeMs: middle(r => r.computeSeconds) * 1000,
      phi: middle(r => r.phi),
      phiSerial: middle(r => r.phiSerial),
      phiAtDepth: middle(r => r.phiAtDepth),
    },
  };
  if (settings.json) console.log(JSON.stringify(report));
  else print(report);
}

async function prepare(settings: Settings, files: ModelFiles) {
  const context = Math.min(files.shape.maxContext, 1024);
  const runtime = await Runtime.open(engineOptions(settings, files.shape, context));
  const session = new Session(runtime);
  let seed = 1;
  const measure = async () => decode(runtime, session, settings.tokens, seed++);
  // the first run fills the slots and warms the compiler; it does not count
  await measure();
  return { info: runtime.info, measure, close: () => runtime.close() };
}

function decode(runtime: Runtime, session: Session, tokens: number, seed: number): DecodeRun {
  const { model, store, info } = runtime;
  session.truncate(0);
  const ids = variedIds(PROMPT_TOKENS + tokens, info.vocabSize, seed);
  session.feed(ids.slice(0, PROMPT_TOKENS));
  store.settle();
  const before = { ...store.counters };
  const begun = performance.now();
  for (let i = PROMPT_TOKENS; i < ids.length; i++) {
    session.feed([ids[i]]);
    model.logits(0, 1);
  }
  const seconds = (performance.now() - begun) / 1000;
  store.settle();
  const used = countersSince(store.counters, before);
  // guesses that were wrong are not a part of what had to be read
  const reads = used.misses + used.prefetched;
  const needed = reads - used.wasted;
  return {
    tokensPerSecond: tokens / seconds,
    hitRate: 1 - needed / used.requests,
    missBytesPerToken: (used.bytesRead / tokens) * (needed / Math.max(1, reads)),
    wastedShare: used.wasted / Math.max(1, reads),
    computeSeconds: replay(session, model, ids),
    waitShare: used.waitUs / 1e6 / seconds,
    depth: Math.min(info.readers, reads / tokens / info.layers),
  };
}

/** Seconds per token when the same token is fed again: the same work without reads. */
function replay(session: Session, model: Runtime['model'], ids: readonly number[]): number {
  const times: number[] = [];
  for (let i = 0; i < REPLAYS; i++) {
    session.truncate(ids.length - 1);
    // states that cannot go back are computed again, which is no part of a token
    session.repair();
    const begun = performance.now();
    session.feed([ids[ids.length - 1]]);
    model.logits(0, 1);
    times.push((performance.now() - begun) / 1000);
  }
  return median(times);
}

function print(report: {
  machine: string;
  model: string;
  share: number;
  expertSlots: number;
  threads: number;
  readers: number;
  kernels: string;
  accepted: number;
  diskAtDepth: { depth: number; bytesPerSecond: number };
  runs: { tokensPerSecond: number; hitRate: number; disk: number; phi: number; accepted: boolean }[];
  median: Record<string, number>;
}): void {
  const m = report.median;
  console.log(`${report.machine}; ${report.model}`);
  console.log(
    `${report.expertSlots} slots (${Math.round(report.share * 100)} % of the experts), ${report.threads} lanes, ` +
      `${report.readers} readers, ${report.kernels}`,
  );
  for (const run of report.runs) {
    console.log(
      `  ${run.tokensPerSecond.toFixed(2)} tok/s, hits ${(run.hitRate * 100).toFixed(1)} %, disk ` +
        `${formatBytes(run.disk)}/s, phi ${run.phi.toFixed(2)}${run.accepted ? '' : ' (disk changed: not counted)'}`,
    );
  }
  console.log(
    `median: ${m.tokensPerSecond.toFixed(2)} tok/s, hits ${(m.hitRate * 100).toFixed(1)} %, ` +
      `${formatBytes(m.missBytesPerToken)} needed from disk per token (${(m.wastedShare * 100).toFixed(1)} % of the reads were ` +
      `wrong guesses), arithmetic ${m.computeMs.toFixed(1)} ms per token`,
  );
  console.log(
    `phi ${m.phi.toFixed(2)} of the best overlap, ${m.phiSerial.toFixed(2)} of the serial limit, ` +
      `${m.phiAtDepth.toFixed(2)} of the disk at depth ${report.diskAtDepth.depth} ` +
      `(${formatBytes(report.diskAtDepth.bytesPerSecond)}/s); ${report.accepted} runs between equal disk readings`,
  );
}
