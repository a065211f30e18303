/**
 * `prefetch`: tokens per second without guesses about the next layer, with them, and where the engine finds out by itself. The modes
 * take turns in one engine, a few tokens at a time: two engines with the same settings differ by more than what is looked for.
 */

import { median } from '../src/common/median.ts';
import { readModel } from '../src/engine/model-files.ts';
import { Runtime } from '../src/engine/runtime.ts';
import { Session } from '../src/engine/session.ts';
import { countersSince, type ExpertCounters, zeroCounters } from '../src/experts/counters.ts';
import type { Prefetch } from '../src/experts/look-ahead-switch.ts';
import { engineOptions, machineLine, readSettings, type Settings, variedIds } from './subject.ts';

/** The first once more at the end: how much it differs from itself is the noise. */
const MODES: readonly Prefetch[] = ['off', 'auto', 'on', 'off'];
/** Tokens of one turn, and those at its beginning that do not count: they find in memory what the mode before has left. */
const TURN_TOKENS = 12;
const UNCOUNTED_TOKENS = 4;
const PROMPT_TOKENS = 32;

interface Subject {
  readonly mode: Prefetch;
  /** Of each turn. */
  readonly msPerToken: number[];
  readonly used: ExpertCounters;
  changes: number;
  isOn: boolean;
}

export async function run(args: string[]): Promise<void> {
  const settings = readSettings(args, { tokens: 128, share: 0.25 });
  const files = readModel(settings);
  const context = Math.min(files.shape.maxContext, 1024);
  const runtime = await Runtime.open(engineOptions(settings, files.shape, context));
  const session = new Session(runtime);
  const subjects = MODES.map(
    (mode): Subject => ({ mode, msPerToken: [], used: zeroCounters(), changes: 0, isOn: false }),
  );
  for (let text = 1; text <= settings.runs; text++) measure(runtime, session, subjects, settings, text);
  report(runtime, subjects, settings);
  await runtime.close();
}

/** `--tokens` for each mode, in turns, after one turn of each that does not count: it fills the slots. */
function measure(
  runtime: Runtime,
  session: Session,
  subjects: readonly Subject[],
  { tokens }: Settings,
  text: number,
): void {
  const turns = Math.ceil(tokens / (TURN_TOKENS - UNCOUNTED_TOKENS)) + 1;
  const tokensOfText = PROMPT_TOKENS + turns * subjects.length * TURN_TOKENS;
  const ids = variedIds(tokensOfText, runtime.info.vocabSize, text);
  let at = 0;
  for (let turn = 0; turn < turns; turn++) {
    for (let i = 0; i < subjects.length; i++, at += TURN_TOKENS) {
      if (session.length + TURN_TOKENS > runtime.info.context || session.length === 0) {
        session.truncate(0);
        session.feed(ids.slice(0, PROMPT_TOKENS));
      }
      const subject = subjects[(turn + i) % subjects.length];
      takeTurn(runtime, session, subject, ids.slice(PROMPT_TOKENS + at, PROMPT_TOKENS + at + TURN_TOKENS), turn > 0);
    }
  }
  session.truncate(0);
}

function takeTurn(runtime: Runtime, session: Session, subject: Subject, ids: readonly number[], counts: boolean): void {
  const { store, model } = runtime;
  store.prefetch = subject.mode;
  const changes = store.counters.lookAheadChanges;
  let before = { ...store.counters };
  let begun = 0;
  for (let i = 0; i < ids.length; i++) {
    if (i === UNCOUNTED_TOKENS) {
      before = { ...store.counters };
      begun = performance.now();
    }
    session.feed([ids[i]]);
    model.logits(0, 1);
  }
  const ms = performance.now() - begun;
  store.settle();
  subject.changes += store.counters.lookAheadChanges - changes;
  subject.isOn = store.looksAhead;
  if (!counts) return;
  subject.msPerToken.push(ms / (ids.length - UNCOUNTED_TOKENS));
  const now = countersSince(store.counters, before);
  for (const key of Object.keys(now) as (keyof ExpertCounters)[]) subject.used[key] += now[key];
}

function report(runtime: Runtime, subjects: readonly Subject[], settings: Settings): void {
  const { plan, threads, readers, directIo, kernels } = runtime.info;
  const off = mean(subjects[0].msPerToken);
  const rows = subjects.map(({ mode, msPerToken, used, changes, isOn }) => {
    const tokens = msPerToken.length * (TURN_TOKENS - UNCOUNTED_TOKENS);
    return {
      mode,
      tokensPerSecond: 1000 / mean(msPerToken),
      medianTokensPerSecond: 1000 / median(msPerToken),
      /** Over the first mode, by means; and one standard error of it. */
      gain: off / mean(msPerToken) - 1,
      error: standardError(msPerToken) / mean(msPerToken),
      waitMsPerToken: used.waitUs / 1000 / tokens,
      hitRate: used.hits / used.requests,
      recall: used.guessable > 0 ? used.guessed / used.guessable : null,
      readsPerToken: (used.misses + used.prefetched) / tokens,
      aheadPerToken: used.prefetched / tokens,
      wastedShare: used.prefetched > 0 ? used.wasted / used.prefetched : null,
      lateShare: used.aheadHits > 0 ? used.aheadLate / used.aheadHits : null,
      changes,
      isOn,
    };
  });
  const { expertSlots } = plan;
  const facts = { machine: machineLine(), model: settings.model, expertSlots, threads, readers, directIo, kernels };
  if (settings.json) {
    console.log(JSON.stringify({ ...facts, rows }));
    return;
  }
  console.log(`${facts.machine}; ${facts.model}`);
  console.log(
    `${expertSlots} slots (${Math.round(settings.share * 100)} % of the experts), ${threads} lanes, ${readers} readers, ` +
      `${directIo ? 'direct' : 'buffered'} reads, ${kernels}`,
  );
  const percent = (share: number | null) => (share === null ? '-' : `${(100 * share).toFixed(1)} %`);
  for (const row of rows) {
    console.log(
      `${row.mode.padEnd(4)} ${row.tokensPerSecond.toFixed(2)} tok/s (${percent(row.gain)} ± ${percent(row.error)}; ` +
        `median ${row.medianTokensPerSecond.toFixed(2)}), waited ${row.waitMsPerToken.toFixed(2)} ms per token, ` +
        `hits ${percent(row.hitRate)}, recall ${percent(row.recall)}, ${row.readsPerToken.toFixed(1)} reads per token, ` +
        `${row.aheadPerToken.toFixed(1)} of them ahead (${percent(row.wastedShare)} unused, ` +
        `${percent(row.lateShare)} of the others late)` +
        (row.mode === 'auto' ? `, ${row.isOn ? 'on' : 'off'} at the end after ${row.changes} changes` : ''),
    );
  }
}

function mean(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0) / values.length;
}

function standardError(values: readonly number[]): number {
  const middle = mean(values);
  return Math.sqrt(mean(values.map(value => (value - middle) ** 2)) / Math.max(1, values.length - 1));
}
