/** What the figures say: medians, ratios, tables. */

import { median } from '../../src/common/median.ts';
import { formatBytes } from '../../src/common/units.ts';
import type { LlamaConfig, Measure } from './work.ts';

/** One way to run llama.cpp that was tried: its tokens per second, or why there are none. */
export interface Trial {
  readonly config: LlamaConfig;
  readonly tokensPerSecond: number | null;
  readonly why: string | null;
}

export interface Pair {
  readonly ours: number;
  readonly llama: number;
  /** Whether both engines find the same token most likely at the end. */
  readonly sameTop: boolean;
}

export interface Section {
  readonly measure: Measure;
  /** Why there are no figures; null when there are. */
  readonly missing: string | null;
  readonly threads: number;
  readonly limitBytes: number | null;
  readonly notes: readonly string[];
  readonly trials: readonly Trial[];
  /** This engine by threads, one run each. */
  readonly ours: readonly { threads: number; tokensPerSecond: number }[];
  readonly pairs: readonly Pair[];
  /** What each engine told of itself in the last pair. */
  readonly about: { readonly ours: readonly string[]; readonly llama: readonly string[] };
}

export interface Summary {
  readonly ours: number;
  readonly llama: number;
  /** Median of the ratios of the pairs, not ratio of the medians: the two of a pair ran next to each other. */
  readonly ratio: number;
  readonly lowest: number;
  readonly highest: number;
}

export function summarise(pairs: readonly Pair[]): Summary {
  const ratios = pairs.map(pair => pair.ours / pair.llama);
  return {
    ours: median(pairs.map(pair => pair.ours)),
    llama: median(pairs.map(pair => pair.llama)),
    ratio: median(ratios),
    lowest: Math.min(...ratios),
    highest: Math.max(...ratios),
  };
}

/** The trial with the most tokens per second; null when none worked. */
export function bestOf(trials: readonly Trial[]): Trial | null {
  return trials.reduce<Trial | null>(
    (best, trial) => ((trial.tokensPerSecond ?? 0) > (best?.tokensPerSecond ?? 0) ? trial : best),
    null,
  );
}

export function configWords({ threads, flashAttention, loading, repack }: LlamaConfig): string {
  const attention = flashAttention ? 'flash attention' : 'no flash attention';
  return `${threads} thread${threads === 1 ? '' : 's'}, ${attention}, ${loading}, ${repack ? 'repacked' : 'not repacked'}`;
}

const TITLES: Readonly<Record<Measure, string>> = {
  decode: 'decode, all in memory',
  prefill: 'prefill, all in memory',
  limited: 'decode, memory for a part of the experts',
};

export function sectionLines(section: Section): string[] {
  const lines = [`${TITLES[section.measure]}${section.limitBytes ? `: ${formatBytes(section.limitBytes)} each` : ''}`];
  if (section.missing !== null) return [...lines, `  missing: ${section.missing}`];
  lines.push(...section.notes.map(note => `  ${note}`));
  for (const { config, tokensPerSecond, why } of section.trials) {
    const figure = tokensPerSecond === null ? why! : `${speed(tokensPerSecond)} tok/s`;
    lines.push(`  llama.cpp, ${configWords(config)}: ${figure}`);
  }
  for (const { threads, tokensPerSecond } of section.ours) {
    lines.push(`  ours, ${threads} thread${threads === 1 ? '' : 's'}: ${speed(tokensPerSecond)} tok/s`);
  }
  for (const { ours, llama } of section.pairs) {
    lines.push(`  pair: ours ${speed(ours)}, llama.cpp ${speed(llama)} tok/s, ratio ${(ours / llama).toFixed(2)}`);
  }
  const { ours, llama, ratio, lowest, highest } = summarise(section.pairs);
  const same = section.pairs.filter(pair => pair.sameTop).length;
  lines.push(
    `  median: ours ${speed(ours)} (${section.threads} threads), llama.cpp ${speed(llama)} tok/s at its best, ` +
      `ratio ${ratio.toFixed(2)} (${lowest.toFixed(2)} to ${highest.toFixed(2)})`,
    `  same most likely token in ${same} of ${section.pairs.length} pairs`,
    ...section.about.ours.map(line => `  ours: ${line}`),
    ...section.about.llama.map(line => `  llama.cpp: ${line}`),
  );
  return lines;
}

function speed(tokensPerSecond: number): string {
  return tokensPerSecond.toFixed(tokensPerSecond < 10 ? 2 : 1);
}
