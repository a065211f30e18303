/** Evaluations as people and programs read them. */

import type { OracleReport } from '../eval/oracle.ts';
import type { PerplexityReport } from '../eval/perplexity.ts';
import { table } from './report.ts';

/** What may change numbers is part of every report. */
function computed({ kernels, activations }: Pick<OracleReport, 'kernels' | 'activations'>): string {
  return `${kernels}, ${activations} activations`;
}

export function oracleText(report: OracleReport): string {
  const small = (x: number) => x.toExponential(2);
  const hidden = report.hiddenDifferences.map(
    (x, layer) => `layer ${layer} ${x === null ? 'not in the pack' : small(x)}`,
  );
  const greedy = report.greedy.map(
    sample => `${sample.matching} of ${sample.total} tokens after a prompt of ${sample.promptTokens}`,
  );
  return table([
    ['logits', `largest difference ${small(report.maxLogitDifference)}, tolerance ${small(report.tolerance)}`],
    ['hidden', hidden.join(', ')],
    ['router', `${report.routerMismatches} choices differ`],
    ['greedy', greedy.join('; ')],
    ['compute', computed(report)],
    ['result', report.passed ? 'same as the reference' : `DIFFERENT, first at ${report.firstDifference}`],
  ]);
}

export function oracleJson(model: string, report: OracleReport) {
  return {
    model,
    passed: report.passed,
    tolerance: report.tolerance,
    max_logit_difference: report.maxLogitDifference,
    hidden_differences: report.hiddenDifferences,
    router_mismatches: report.routerMismatches,
    greedy: report.greedy.map(({ promptTokens, matching, total }) => ({
      prompt_tokens: promptTokens,
      matching,
      total,
    })),
    first_difference: report.firstDifference,
    kernels: report.kernels,
    activations: report.activations,
  };
}

export function perplexityText(report: PerplexityReport): string {
  return table([
    ['perplexity', report.ppl.toFixed(4)],
    ['nats per token', report.nll.toFixed(6)],
    ['bits per byte', report.bitsPerByte.toFixed(6)],
    ['text', `${report.bytes} bytes, ${report.tokens} tokens, ${report.predictedTokens} of them predicted`],
    ['window', `${report.window} predictions, each window from an empty context`],
    ['compute', computed(report)],
  ]);
}

export function perplexityJson(model: string, file: string, report: PerplexityReport) {
  return {
    model,
    text: file,
    ppl: report.ppl,
    nll: report.nll,
    bits_per_byte: report.bitsPerByte,
    bytes: report.bytes,
    tokens: report.tokens,
    predicted_tokens: report.predictedTokens,
    window: report.window,
    kernels: report.kernels,
    activations: report.activations,
  };
}
