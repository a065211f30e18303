/** The reference packs of the repository and a short way to run one. */

import { fileURLToPath } from 'node:url';
import type { EngineOptions, ScoreRequest, ScoreResult } from '../../src/engine/api.ts';
import { Runtime, type RuntimeHooks } from '../../src/engine/runtime.ts';
import { score } from '../../src/engine/score.ts';
import { Session } from '../../src/engine/session.ts';

/** Every pack, and how many experts a token of it uses: each is compared with its reference. */
export const ALL_PACKS: readonly { readonly name: string; readonly topK: number }[] = [
  { name: 'olmoe', topK: 4 },
  { name: 'olmoe-int4g64', topK: 4 },
  { name: 'olmoe-colibri', topK: 4 },
  { name: 'qwen3-moe', topK: 4 },
  { name: 'qwen3-moe-fp8', topK: 4 },
  { name: 'mixtral', topK: 2 },
  { name: 'glm4-moe', topK: 4 },
  { name: 'minimax-m2', topK: 4 },
  { name: 'minimax-m2-fp8', topK: 4 },
  { name: 'gpt-oss', topK: 4 },
  { name: 'gpt-oss-mxfp4', topK: 4 },
  { name: 'deepseek-v2-lite', topK: 4 },
  { name: 'deepseek-v3', topK: 4 },
  { name: 'deepseek-v3-fp8', topK: 4 },
  { name: 'glm-moe-dsa', topK: 4 },
  { name: 'glm-moe-dsa-fp8', topK: 4 },
  { name: 'qwen36', topK: 4 },
  { name: 'qwen36-fp8', topK: 4 },
  { name: 'qwen36-int4g64', topK: 4 },
];

/** Packs that differ in what they compute or keep, for tests that run each in many ways. A pack that brings no new one need not be here. */
export const PACKS = ['olmoe', 'olmoe-int4g64', 'olmoe-colibri', 'gpt-oss-mxfp4', 'glm-moe-dsa', 'qwen36'] as const;

/** One pack for each kind of state that sessions keep: rows, windows, latents with index keys, recurrent matrices. */
export const STATE_PACKS = ['olmoe', 'gpt-oss', 'glm-moe-dsa', 'qwen36'] as const;

export function packDirectory(name: string): string {
  return fileURLToPath(new URL(`../oracles/${name}`, import.meta.url));
}

/** Roomy for packs and for the bundled model. */
export const TEST_RAM_BYTES = 1_000_000_000;

/** A chunk this small makes every lane work, even on models of a few kilobytes. */
const CHUNK_COST = 1000;

/**
 * Two readers still overtake each other, and a runtime opens in half the time. One lane, because lanes that meet thousands of times in a
 * second wait for whatever else the machine does: tests that are about lanes ask for some.
 */
const FEW_THREADS = { readers: 2, threads: 1 };

/** Opens a runtime, runs `use` on it, closes it. */
export async function withRuntime<T>(
  options: EngineOptions,
  use: (runtime: Runtime, session: Session) => T | Promise<T>,
  hooks: RuntimeHooks = {},
): Promise<T> {
  const runtime = await Runtime.open({ ram: TEST_RAM_BYTES, ...FEW_THREADS, ...options }, () => {}, hooks);
  runtime.compute.lanes.minChunkCost = CHUNK_COST;
  try {
    return await use(runtime, new Session(runtime));
  } finally {
    await runtime.close();
  }
}

export function scoreWith(
  options: EngineOptions,
  request: ScoreRequest,
  hooks: RuntimeHooks = {},
): Promise<ScoreResult> {
  return withRuntime(options, (runtime, session) => score(runtime, session, request), hooks);
}
