/**
 * Compares the engine with a reference pack: a checkpoint directory that also holds what an independent implementation computed in
 * float32, in reference.safetensors (input_ids, logits, hidden.<layer>, router.<layer>.ids, index.<layer>.selected, mtp.*) and
 * reference.json (greedy continuations, tolerance_hint).
 */

import { ModelFileError } from '../common/errors.ts';
import type { Activations, Engine, EngineOptions, ScoreResult } from '../engine/api.ts';
import { openEngine } from '../engine/engine.ts';
import type { KernelName } from '../kernels/kernels.ts';
import { greedyTokens, leadingMatches } from './greedy.ts';
import { hasPrediction, type Reference, readReference, requireReference } from './reference.ts';

export interface OracleReport {
  readonly passed: boolean;
  readonly tolerance: number;
  readonly maxLogitDifference: number;
  /** Largest difference of the residual stream after each layer; null where the pack has none. */
  readonly hiddenDifferences: readonly (number | null)[];
  /** (token, layer) pairs whose set of experts differs. */
  readonly routerMismatches: number;
  /** (token, layer) pairs whose keys, chosen by an indexer, differ; null where the pack has none. */
  readonly selectionMismatches: number | null;
  /** Largest differences of the prediction head; null where the pack has none. */
  readonly prediction: { readonly maxLogitDifference: number; readonly hiddenDifference: number | null } | null;
  readonly greedy: readonly { readonly promptTokens: number; readonly matching: number; readonly total: number }[];
  /** The first thing that differs, by layer; null when nothing does. */
  readonly firstDifference: string | null;
  /** What computed, and how. */
  readonly kernels: KernelName;
  readonly activations: Activations;
}

export type OracleOptions = Omit<EngineOptions, 'model'>;

/** Runs a pack. Opens and closes its own engine. */
export async function evalOracle(directory: string, options: OracleOptions = {}): Promise<OracleReport> {
  requireReference(directory);
  const engine = await openEngine({ ...options, model: directory, mtp: hasPrediction(directory) });
  try {
    return await compareWithReference(engine, readReference(directory, engine.info.layers));
  } finally {
    await engine.close();
  }
}

/** Teacher-forced pass, then every greedy continuation. */
export async function compareWithReference(engine: Engine, reference: Reference): Promise<OracleReport> {
  const { tolerance } = reference;
  checkWidths(engine, reference);
  const got = await engine.score({
    ids: reference.inputIds,
    logits: true,
    hidden: true,
    router: true,
    selected: true,
    mtp: reference.mtp !== null,
  });
  let firstDifference: string | null = null;
  const notice = (what: string) => {
    firstDifference ??= what;
  };
  const hiddenDifferences: (number | null)[] = [];
  let routerMismatches = 0;
  let selectionMismatches = 0;
  for (let layer = 0; layer < engine.info.layers; layer++) {
    const tokens = (count: number) => `layer ${layer}: ${count} ${count === 1 ? 'token chooses' : 'tokens choose'}`;
    const others = countSelectionMismatches(got.selected?.[layer] ?? null, reference.selected[layer]);
    if (others > 0) notice(`${tokens(others)} other keys`);
    selectionMismatches += others;
    const wrong = countRouterMismatches(got.router![layer].ids, reference.routerIds[layer], engine.info.topK);
    if (wrong > 0) notice(`${tokens(wrong)} other experts`);
    routerMismatches += wrong;
    const difference = hiddenDifference(got.hidden![layer], reference, layer);
    hiddenDifferences.push(difference);
    if (difference !== null && !(difference <= tolerance * HIDDEN_SLACK)) {
      notice(`layer ${layer}: hidden state differs by ${difference.toExponential(2)}`);
    }
  }
  const maxLogitDifference = maxDifference(got.logits!, reference.logits);
  if (!(maxLogitDifference <= tolerance)) {
    notice(`logits differ by ${maxLogitDifference.toExponential(2)} (tolerance ${tolerance.toExponential(1)})`);
  }
  const prediction = comparePrediction(got.mtp, reference.mtp);
  if (prediction && !(prediction.maxLogitDifference <= tolerance)) {
    notice(`logits of the prediction head differ by ${prediction.maxLogitDifference.toExponential(2)}`);
  }
  const greedy = [];
  for (const sample of reference.greedy) {
    const total = sample.generated_ids.length;
    const matching = leadingMatches(await greedyTokens(engine, sample.prompt_ids, total), sample.generated_ids);
    greedy.push({ promptTokens: sample.prompt_ids.length, matching, total });
    if (matching < total) notice(`greedy: token ${matching} after a prompt of ${sample.prompt_ids.length} differs`);
  }
  return {
    kernels: engine.info.kernels,
    activations: engine.info.activations,
    passed: firstDifference === null,
    tolerance,
    maxLogitDifference,
    hiddenDifferences,
    routerMismatches,
    selectionMismatches: reference.selected.some(keys => keys !== null) ? selectionMismatches : null,
    prediction,
    greedy,
    firstDifference,
  };
}

/** Hidden states are larger than logits and pass a norm before they matter; packs state a tolerance for logits only. */
const HIDDEN_SLACK = 10;

/** A pack of another model is a mistake of its user, not a difference to report. */
function checkWidths(engine: Engine, reference: Reference): void {
  const rows = reference.inputIds.length;
  const { vocabSize, hiddenSize, topK } = engine.info;
  const { hiddenRows, mtp } = reference;
  const widths: readonly (readonly [string, number, ArrayLike<number> | null, number])[] = [
    ['logits', vocabSize, reference.logits, rows],
    ...reference.hidden.map(
      (values, layer) => [`hidden.${layer}`, hiddenSize, values, hiddenRows?.length ?? rows] as const,
    ),
    ...reference.routerIds.map((values, layer) => [`router.${layer}.ids`, topK, values, rows] as const),
    ['mtp.logits', vocabSize, mtp?.logits ?? null, mtp?.rows ?? 0],
    ['mtp.hidden', hiddenSize, mtp?.hidden ?? null, mtp?.rows ?? 0],
  ];
  for (const [name, width, values, tokens] of widths) {
    if (values === null || values.length === tokens * width) continue;
    const got = `${values.length} values for ${tokens} tokens`;
    throw new ModelFileError('BAD_REFERENCE', `${name} has ${got}; this model makes ${width} per token`, {
      hint: 'the reference belongs to another model',
      details: { tensor: name, expected: tokens * width, got: values.length },
    });
  }
  const outside = hiddenRows?.find(row => row < 0 || row >= rows);
  if (outside === undefined) return;
  throw new ModelFileError('BAD_REFERENCE', `hidden_rows names token ${outside} of ${rows}`, {
    hint: 'a reference pack has hidden states of its own tokens',
    details: { tensor: 'hidden_rows', got: outside },
  });
}

/** Largest difference of a layer's hidden states at the tokens that the reference has; null when it has none. */
function hiddenDifference(
  got: Float32Array,
  { hidden, hiddenRows, inputIds }: Reference,
  layer: number,
): number | null {
  const expected = hidden[layer];
  if (expected === null) return null;
  if (hiddenRows === null) return maxDifference(got, expected);
  const width = got.length / inputIds.length;
  const rows = hiddenRows.map((row, i) =>
    maxDifference(got.subarray(row * width, (row + 1) * width), expected.subarray(i * width, (i + 1) * width)),
  );
  return rows.reduce((max, difference) => Math.max(max, difference), 0);
}

function comparePrediction(got: ScoreResult['mtp'], expected: Reference['mtp']): OracleReport['prediction'] {
  if (!got || expected === null) return null;
  const difference = (a: Float32Array, b: Float32Array) => maxDifference(a.subarray(0, b.length), b);
  return {
    maxLogitDifference: difference(got.logits, expected.logits),
    hiddenDifference: expected.hidden && difference(got.hidden, expected.hidden),
  };
}

/** Largest |a - b|; NaN when one is NaN. Same lengths. */
export function maxDifference(a: Float32Array, b: Float32Array): number {
  let max = 0;
  for (let i = 0; i < a.length; i++) max = Math.max(max, Math.abs(a[i] - b[i]));
  return max;
}

function countRouterMismatches(got: Int32Array, expected: readonly number[] | null, topK: number): number {
  if (expected === null) return 0;
  let wrong = 0;
  for (let from = 0; from < got.length; from += topK) {
    const a = [...got.subarray(from, from + topK)].sort((x, y) => x - y);
    const b = expected.slice(from, from + topK).sort((x, y) => x - y);
    if (a.some((id, i) => id !== b[i])) wrong++;
  }
  return wrong;
}

/** Tokens whose list of keys differs; all of them when the engine has no indexer there. */
function countSelectionMismatches(
  got: readonly Int32Array[] | null,
  expected: readonly (readonly number[])[] | null,
): number {
  if (expected === null) return 0;
  const isSame = (keys: readonly number[], row: number) =>
    got?.[row]?.length === keys.length && keys.every((key, i) => got[row][i] === key);
  return expected.filter((keys, row) => !isSame(keys, row)).length;
}
