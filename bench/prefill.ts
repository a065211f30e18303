/**
 * `prefill`: prompt tokens per second from a cold expert store, and a check that every needed expert was read exactly once
 * per chunk.
 */

import { median } from '../src/common/median.ts';
import { formatBytes } from '../src/common/units.ts';
import { readModel } from '../src/engine/model-files.ts';
import { Runtime } from '../src/engine/runtime.ts';
import { score } from '../src/engine/score.ts';
import { Session } from '../src/engine/session.ts';
import { countersSince } from '../src/experts/counters.ts';
import type { ModelShape } from '../src/models/family.ts';
import { bracket, diskCeiling } from './bracket.ts';
import { engineOptions, machineLine, readSettings, type Settings, variedIds } from './subject.ts';

const CEILING_DEPTH = 8;

interface PrefillRun {
  readonly tokensPerSecond: number;
  readonly bytesRead: number;
  /** Distinct (layer, expert) pairs that the prompt routed to. */
  readonly distinctExperts: number;
  readonly reads: number;
  readonly waitShare: number;
}

export async function run(args: string[]): Promise<void> {
  const settings = readSettings(args, { tokens: 512, share: 0.25 });
  const files = readModel(settings);
  const runs = await bracket(
    settings.runs,
    () => diskCeiling(files, CEILING_DEPTH),
    () => prefill(settings, files.shape),
  );
  const rows = runs.map(({ value, before, after, accepted }) => {
    const disk = (before + after) / 2;
    return { ...value, disk, accepted, diskLimit: settings.tokens / (value.bytesRead / disk) };
  });
  const counted = rows.some(row => row.accepted) ? rows.filter(row => row.accepted) : rows;
  const middle = (pick: (row: (typeof rows)[number]) => number) => median(counted.map(pick));
  const report = {
    machine: machineLine(),
    model: settings.model,
    tokens: settings.tokens,
    share: settings.share,
    runs: rows,
    median: {
      tokensPerSecond: middle(r => r.tokensPerSecond),
      diskLimit: middle(r => r.diskLimit),
      ofDiskLimit: middle(r => r.tokensPerSecond / r.diskLimit),
    },
    /** Reads that repeated an expert within the chunk; must be 0. */
    repeatedReads: rows.map(r => r.reads - r.distinctExperts),
  };
  if (report.repeatedReads.some(n => n > 0)) process.exitCode = 1;
  if (settings.json) {
    console.log(JSON.stringify(report));
    return;
  }
  console.log(`${report.machine}; ${report.model}; ${settings.tokens} tokens in one chunk`);
  for (const r of rows) {
    console.log(
      `  ${r.tokensPerSecond.toFixed(1)} tok/s; ${r.distinctExperts} experts, ${r.reads} reads, ` +
        `${formatBytes(r.bytesRead)}; disk ${formatBytes(r.disk)}/s allows ${r.diskLimit.toFixed(1)} tok/s` +
        `${r.accepted ? '' : ' (disk changed: not counted)'}`,
    );
  }
  const m = report.median;
  console.log(`median: ${m.tokensPerSecond.toFixed(1)} tok/s, ${(m.ofDiskLimit * 100).toFixed(0)} % of the disk limit`);
}

/** A fresh runtime each time: the store is cold. */
async function prefill(settings: Settings, shape: ModelShape): Promise<PrefillRun> {
  const runtime = await Runtime.open({
    ...engineOptions(settings, shape, settings.tokens),
    chunk: settings.tokens,
  });
  try {
    const { info, store } = runtime;
    const ids = variedIds(settings.tokens, info.vocabSize, 1);
    const before = { ...store.counters };
    const begun = performance.now();
    const { router } = score(runtime, new Session(runtime), { ids, router: true });
    const seconds = (performance.now() - begun) / 1000;
    const used = countersSince(store.counters, before);
    const distinct = router!.reduce((sum, layer) => sum + new Set(layer.ids).size, 0);
    return {
      tokensPerSecond: settings.tokens / seconds,
      bytesRead: used.bytesRead,
      distinctExperts: distinct,
      reads: used.misses + used.prefetched,
      waitShare: used.waitUs / 1e6 / seconds,
    };
  } finally {
    await runtime.close();
  }
}
