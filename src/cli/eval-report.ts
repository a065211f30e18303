/** Evaluations as people and programs read them. */

import type { EngineInfo } from '../engine/api.ts';
import type { ChoicesReport } from '../eval/choices.ts';
import type { DivergenceReport } from '../eval/divergence.ts';
import type { OracleReport } from '../eval/oracle.ts';
import type { PerplexityReport } from '../eval/perplexity.ts';
import type { Interval } from '../eval/statistics.ts';
import { table } from './report.ts';

/** What may change numbers is part of every report. */
function computed({ kernels, activations }: Pick<OracleReport, 'kernels' | 'activations'>): string {
  return `${kernels}, ${activations} activations`;
}

function range({ low, high }: Interval, show: (x: number) => string): string {
  return `${show(low)} to ${show(high)}`;
}

const percent = (share: number) => `${(100 * share).toFixed(2)} %`;

export function oracleText(report: OracleReport): string {
  const small = (x: number) => x.toExponential(2);
  const hidden = report.hiddenDifferences.map(
    (x, layer) => `layer ${layer} ${x === null ? 'not in the pack' : small(x)}`,
  );
  const greedy = report.greedy.map(
    sample => `${sample.matching} of ${sample.total} tokens after a prompt of ${sample.promptTokens}`,
  );
  const { selectionMismatches: keys, prediction } = report;
  const predicted = prediction && `largest difference ${small(prediction.maxLogitDifference)}`;
  return table([
    ['logits', `largest difference ${small(report.maxLogitDifference)}, tolerance ${small(report.tolerance)}`],
    ['hidden', hidden.join(', ')],
    ['router', `${report.routerMismatches} choices differ`],
    ...(keys === null ? [] : [['indexer', `${keys} choices differ`]]),
    ...(predicted === null ? [] : [['prediction', predicted]]),
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
    selection_mismatches: report.selectionMismatches,
    prediction: report.prediction && {
      max_logit_difference: report.prediction.maxLogitDifference,
      hidden_difference: report.prediction.hiddenDifference,
    },
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
    ['perplexity', `${report.ppl.toFixed(4)} (95 %: ${range(report.pplInterval, x => x.toFixed(4))})`],
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
    ppl_interval: [report.pplInterval.low, report.pplInterval.high],
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

interface Compared {
  readonly model: EngineInfo;
  readonly reference: EngineInfo;
}

export function divergenceText({ model, reference }: Compared, report: DivergenceReport): string {
  const nats = (x: number) => x.toFixed(6);
  const { klInterval, agreementInterval } = report;
  return table([
    ['divergence', `${nats(report.kl)} nats per token (95 %: ${range(klInterval, nats)})`],
    ['', `median ${nats(report.klMedian)}, 99 % below ${nats(report.kl99)}, largest ${nats(report.klMax)}`],
    ['same top token', `${percent(report.agreement)} (95 %: ${range(agreementInterval, percent)})`],
    ['perplexity', `${report.ppl.toFixed(4)}, of the reference ${report.referencePpl.toFixed(4)}`],
    ['text', `${report.tokens} predicted tokens in windows of ${report.window}, each from an empty context`],
    ['model', `${model.directory}: ${computed(model)}`],
    ['reference', `${reference.directory}: ${computed(reference)}`],
  ]);
}

export function divergenceJson({ model, reference }: Compared, file: string, report: DivergenceReport) {
  return {
    model: model.directory,
    reference: reference.directory,
    text: file,
    predicted_tokens: report.tokens,
    kl: report.kl,
    kl_interval: [report.klInterval.low, report.klInterval.high],
    kl_median: report.klMedian,
    kl_99: report.kl99,
    kl_max: report.klMax,
    agreement: report.agreement,
    agreement_interval: [report.agreementInterval.low, report.agreementInterval.high],
    ppl: report.ppl,
    reference_ppl: report.referencePpl,
    window: report.window,
    kernels: model.kernels,
    activations: model.activations,
    reference_activations: reference.activations,
  };
}

export function choicesText(model: EngineInfo, report: ChoicesReport): string {
  const line = ({ correct, accuracy, interval }: ChoicesReport['normalised']) =>
    `${percent(accuracy)} (95 %: ${range(interval, percent)}), ${correct} of ${report.questions}`;
  return table([
    ['accuracy', line(report)],
    ['per byte', line(report.normalised)],
    ['compute', computed(model)],
  ]);
}

export function choicesJson(model: EngineInfo, file: string, report: ChoicesReport) {
  const figures = ({ correct, accuracy, interval }: ChoicesReport['normalised']) => ({
    correct,
    accuracy,
    interval: [interval.low, interval.high],
  });
  return {
    model: model.directory,
    task: file,
    questions: report.questions,
    ...figures(report),
    normalised: figures(report.normalised),
    kernels: model.kernels,
    activations: model.activations,
  };
}
