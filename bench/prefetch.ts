/**
 * `prefetch`: tokens per second without guesses about the next layer, with them, and where the engine finds out by itself. They
 * take turns, a few tokens at a time, with the same tokens, each with its own slots: what the machine does besides hits all alike.
 */

import { readModel } from '../src/engine/model-files.ts';
import { Runtime } from '../src/engine/runtime.ts';
import { Session } from '../src/engine/session.ts';
import { countersSince, type ExpertCounters, zeroCounters } from '../src/experts/counters.ts';
import type { Prefetch } from '../src/experts/look-ahead-switch.ts';
import { median } from './bracket.ts';
import { engineOptions, machineLine, readSettings, type Settings, variedIds } from './subject.ts';

/** The first once more at the end: how much it differs from itself is the noise. */
const MODES: readonly Prefetch[] = ['off', 'auto', 'on', 'off'];
const PROMPT_TOKENS = 32;
/** Tokens of one turn, and those at the beginning that do not count: the slots fill, and `auto` has its first trial. */
const TURN_TOKENS = 8;
const WARM_UP_TOKENS = 32;

interface Subject {
  readonly mode: Prefetch;
  readonly runtime: Runtime;
  readonly session: Session;
  readonly msPerToken: number[];
  used: ExpertCounters;
}

export async function run(args: string[]): Promise<void> {
  const settings = readSettings(args, { tokens: 128, share: 0.25 });
  const files = readModel(settings);
  const context = Math.min(files.shape.maxContext, 1024);
  const options = engineOptions(settings, files.shape, context);
  const subjects: Subject[] = [];
  for (const prefetch of MODES) {
    const runtime = await Runtime.open({ ...options, prefetch });
    subjects.push({ mode: prefetch, runtime, session: new Session(runtime), msPerToken: [], used: zeroCounters() });
  }
  for (let text = 1; text <= settings.runs; text++) measure(subjects, settings, text);
  report(subjects, settings);
  for (const { runtime } of subjects) await runtime.close();
}

function measure(subjects: readonly Subject[], { tokens }: Settings, text: number): void {
  const all = WARM_UP_TOKENS + tokens;
  const ids = variedIds(PROMPT_TOKENS + all, subjects[0].runtime.info.vocabSize, text);
  for (const { session } of subjects) {
    session.truncate(0);
    session.feed(ids.slice(0, PROMPT_TOKENS));
  }
  for (let from = 0, turn = 0; from < all; from += TURN_TOKENS, turn++) {
    const part = ids.slice(PROMPT_TOKENS + from).slice(0, TURN_TOKENS);
    // each goes first, second and last equally often, and none twice in a row: it would find its weights in the processor's caches
    for (let i = 0; i < subjects.length; i++) {
      takeTurn(subjects[(turn + i) % subjects.length], part, from >= WARM_UP_TOKENS);
    }
  }
}

function takeTurn(subject: Subject, ids: readonly number[], counts: boolean): void {
  const { session, runtime } = subject;
  const before = { ...runtime.store.counters };
  const begun = performance.now();
  for (const id of ids) {
    session.feed([id]);
    runtime.model.logits(0, 1);
  }
  if (!counts) return;
  subject.msPerToken.push((performance.now() - begun) / ids.length);
  const now = countersSince(runtime.store.counters, before);
  for (const key of Object.keys(now) as (keyof ExpertCounters)[]) subject.used[key] += now[key];
}

function report(subjects: readonly Subject[], settings: Settings): void {
  const [off] = subjects;
  const { plan, threads, readers, directIo, kernels } = off.runtime.info;
  const rows = subjects.map(({ mode, msPerToken, used, runtime }) => {
    const tokens = msPerToken.length * TURN_TOKENS;
    return {
      mode,
      tokensPerSecond: 1000 / median(msPerToken),
      /** Median over turns of the time without guesses over that of this mode, in the same turn. */
      gain: median(msPerToken.map((ms, i) => off.msPerToken[i] / ms)) - 1,
      meanGain: sum(off.msPerToken) / sum(msPerToken) - 1,
      waitMsPerToken: used.waitUs / 1000 / tokens,
      hitRate: used.hits / used.requests,
      recall: used.guessable > 0 ? used.guessed / used.guessable : null,
      readsPerToken: (used.misses + used.prefetched) / tokens,
      aheadPerToken: used.prefetched / tokens,
      wastedShare: used.prefetched > 0 ? used.wasted / used.prefetched : null,
      lateShare: used.aheadHits > 0 ? used.aheadLate / used.aheadHits : null,
      changes: runtime.store.counters.lookAheadChanges,
      isOnAtEnd: runtime.store.looksAhead,
    };
  });
  const facts = {
    machine: machineLine(),
    model: settings.model,
    expertSlots: plan.expertSlots,
    threads,
    readers,
    directIo,
    kernels,
  };
  if (settings.json) {
    console.log(JSON.stringify({ ...facts, rows }));
    return;
  }
  console.log(`${facts.machine}; ${facts.model}`);
  console.log(
    `${plan.expertSlots} slots (${Math.round(settings.share * 100)} % of the experts), ${threads} lanes, ${readers} readers, ` +
      `${directIo ? 'direct' : 'buffered'} reads, ${kernels}`,
  );
  const percent = (share: number | null) => (share === null ? '-' : `${(100 * share).toFixed(1)} %`);
  for (const row of rows) {
    console.log(
      `${row.mode.padEnd(4)} ${row.tokensPerSecond.toFixed(2)} tok/s (${percent(row.gain)}, mean ${percent(row.meanGain)}), ` +
        `waited ${row.waitMsPerToken.toFixed(2)} ms per token, hits ${percent(row.hitRate)}, recall ${percent(row.recall)}, ` +
        `${row.readsPerToken.toFixed(1)} reads per token, ${row.aheadPerToken.toFixed(1)} of them ahead ` +
        `(${percent(row.wastedShare)} unused, ${percent(row.lateShare)} of the others late)` +
        (row.mode === 'auto' ? `, ${row.isOnAtEnd ? 'on' : 'off'} at the end after ${row.changes} changes` : ''),
    );
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
