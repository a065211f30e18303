/**
 * Child process of `overhead`: opens a model as the command line does, generates, and prints how high its resident set
 * rose and how much of it was arenas. Argument: a ProbeRequest as JSON.
 */

import { readFileSync } from 'node:fs';
import type { EngineOptions } from '../src/engine/api.ts';

export interface ProbeRequest {
  readonly options: EngineOptions;
  /** `dist` measures the compiled package. */
  readonly code: 'src' | 'dist';
  readonly promptTokens: number;
  readonly maxTokens: number;
  readonly requests: number;
}

export interface ProbeResult {
  /** Highest resident set, arenas taken off. */
  readonly overheadBytes: number;
  readonly maxRssBytes: number;
  readonly arenaBytes: number;
  /** What the plan said about it. */
  readonly plannedBytes: number;
}

const WASM_PAGE = 65536;

/** Resident bytes of the mapping that is as large as the (only) arena; of several such the least, which errs upwards. */
function residentArenaBytes(size: number): number {
  const found: number[] = [];
  for (const block of readFileSync('/proc/self/smaps', 'utf8').split(/\n(?=[0-9a-f]+-[0-9a-f]+ )/)) {
    const [, from, to] = /^([0-9a-f]+)-([0-9a-f]+) rw/.exec(block) ?? [];
    if (from === undefined || Number.parseInt(to, 16) - Number.parseInt(from, 16) !== size) continue;
    found.push(Number(/^Rss:\s+(\d+) kB/m.exec(block)?.[1]) * 1024);
  }
  if (found.length === 0) throw new Error(`no mapping has the size of the arena (${size} bytes)`);
  return Math.min(...found);
}

function maxRssBytes(): number {
  return Number(/^VmHWM:\s+(\d+) kB/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1]) * 1024;
}

async function probe(request: ProbeRequest): Promise<ProbeResult> {
  const { options, code, promptTokens, maxTokens, requests } = request;
  const suffix = code === 'src' ? 'ts' : 'js';
  // what the command line keeps in memory beside the engine
  await import(`../${code}/cli/program.${suffix}`);
  await import(`../${code}/cli/commands/run.${suffix}`);
  const { openEngine }: typeof import('../src/engine/engine.ts') = await import(`../${code}/engine/engine.${suffix}`);
  const engine = await openEngine(options);
  const ids = Array.from({ length: promptTokens }, (_, i) => 5 + ((i * 7) % 200));
  for (let i = 0; i < requests; i++) {
    ids[0] = 5 + i;
    await engine.encode({ text: 'the quick brown fox '.repeat(promptTokens / 4) });
    for await (const _event of engine.generate({ prompt: { ids }, maxTokens, ignoreEos: true, seed: i, logprobs: 2 })) {
      // only the work counts
    }
  }
  const { total, overhead } = engine.info.plan;
  const arenaBytes = residentArenaBytes(Math.ceil((total - overhead) / WASM_PAGE) * WASM_PAGE);
  const highest = maxRssBytes();
  await engine.close();
  return { overheadBytes: highest - arenaBytes, maxRssBytes: highest, arenaBytes, plannedBytes: overhead };
}

console.log(JSON.stringify(await probe(JSON.parse(process.argv[2]))));
