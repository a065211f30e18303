/**
 * Perplexity of a text: the whole text is tokenised at once (no BOS or EOS added, control tokens recognised), cut into
 * windows of `context` predictions that share one boundary token, and each window is scored from an empty session. Every
 * token but the first is predicted exactly once; ppl = exp(sum of losses / predictions).
 */

import type { Activations, Engine } from '../engine/api.ts';
import type { KernelName } from '../kernels/kernels.ts';
import { type Interval, Mean } from './statistics.ts';
import { requireWindow } from './window.ts';

/** Window of the published figures of the bundled model. */
export const DEFAULT_WINDOW = 256;

export interface PerplexityReport {
  readonly ppl: number;
  /** 95 %, from the spread of the losses. */
  readonly pplInterval: Interval;
  /** Nats per predicted token. */
  readonly nll: number;
  readonly bitsPerByte: number;
  readonly tokens: number;
  readonly predictedTokens: number;
  readonly bytes: number;
  readonly window: number;
  /** What computed, and how. */
  readonly kernels: KernelName;
  readonly activations: Activations;
}

/** `onProgress` gets predictions done and in all. */
export async function evalPerplexity(
  engine: Engine,
  text: string,
  window: number = Math.min(DEFAULT_WINDOW, engine.info.context),
  onProgress: (done: number, total: number) => void = () => {},
): Promise<PerplexityReport> {
  requireWindow(window, engine);
  const ids = await engine.encode({ text }, { anyLength: true });
  const total = ids.length - 1;
  const losses = new Mean();
  let sum = 0;
  for (let from = 0; from < total; from += window) {
    const targets = ids.slice(from, from + window + 1);
    // the last token is only a target; scoring it as an input too would need a longer context than the window
    const nll = await engine.score({ ids: targets.slice(0, -1), next: targets.at(-1), nll: true });
    for (const loss of nll.nll!) {
      sum += loss;
      losses.add(loss);
    }
    onProgress(Math.min(total, from + window), total);
  }
  const bytes = Buffer.byteLength(text);
  return {
    ppl: Math.exp(sum / total),
    pplInterval: { low: Math.exp(losses.interval.low), high: Math.exp(losses.interval.high) },
    nll: sum / total,
    bitsPerByte: sum / Math.LN2 / bytes,
    tokens: ids.length,
    predictedTokens: total,
    bytes,
    window,
    kernels: engine.info.kernels,
    activations: engine.info.activations,
  };
}
