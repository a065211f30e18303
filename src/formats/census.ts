/** What a family needs against what the files hold, told in one error instead of one missing tensor at a time. */

import { ConfigError, ModelFileError } from '../common/errors.ts';
import { listNames } from './files.ts';

export interface Census {
  readonly required: number;
  /** Absent names in the order of the requirement. */
  readonly missing: readonly string[];
  /** Layer number -> how many of its required tensors are absent, and how many it needs. */
  readonly layers: ReadonlyMap<number, { readonly missing: number; readonly required: number }>;
  /** Absent names that belong to no layer. */
  readonly outside: readonly string[];
}

/** Names with a middle part that is a number, as "layers.12." or "blk.3.", belong to that layer. */
const LAYER = /(?:^|\.)[a-z_]+\.(\d{1,6})\./i;

/** Counts which of the `required` tensor names are absent from `present` (a set, or the tensor table). */
export function census(present: { has(name: string): boolean }, required: Iterable<string>): Census {
  const layers = new Map<number, { missing: number; required: number }>();
  const missing: string[] = [];
  const outside: string[] = [];
  let count = 0;
  for (const name of required) {
    count++;
    const absent = !present.has(name);
    if (absent) missing.push(name);
    const match = LAYER.exec(name);
    if (match) {
      const layer = Number(match[1]);
      const entry = layers.get(layer) ?? { missing: 0, required: 0 };
      layers.set(layer, { missing: entry.missing + Number(absent), required: entry.required + 1 });
    } else if (absent) outside.push(name);
  }
  return { required: count, missing, layers, outside };
}

/** Throws one TENSORS_MISSING that says which layers are absent, which are incomplete, and which other tensors are. */
export function requireTensors(
  directory: string,
  present: { has(name: string): boolean },
  required: Iterable<string>,
): void {
  const { missing, layers, outside, required: total } = census(present, required);
  if (missing.length === 0) return;
  const entries = [...layers].filter(([, layer]) => layer.missing > 0).sort(([a], [b]) => a - b);
  const whole = entries.filter(([, layer]) => layer.missing === layer.required).map(([layer]) => layer);
  const partial = entries.filter(([, layer]) => layer.missing < layer.required);
  const parts: string[] = [];
  if (whole.length > 0) parts.push(`absent layers: ${formatRanges(whole)} (${whole.length} of ${layers.size})`);
  if (partial.length > 0) {
    const shown = partial.slice(0, 5).map(([layer, n]) => `${layer} lacks ${n.missing} of ${n.required}`);
    parts.push(`incomplete layers: ${shown.join(', ')}${partial.length > 5 ? ` and ${partial.length - 5} more` : ''}`);
  }
  if (outside.length > 0) parts.push(`outside layers: ${listNames(outside)}`);
  parts.push(`first: ${listNames(missing)}`);
  const what = `${missing.length} of ${total} tensors are absent; ${parts.join('; ')}`;
  throw new ModelFileError('TENSORS_MISSING', `${directory}: ${what}`, {
    hint: 'the model is incomplete: finish the download or the conversion',
    details: {
      file: directory,
      missing: missing.slice(0, 100),
      count: missing.length,
      layers: entries.map(([layer]) => layer),
    },
  });
}

/** [0, 1, 2, 5] -> "0-2, 5". Input ascending. */
export function formatRanges(numbers: readonly number[]): string {
  const ranges: [number, number][] = [];
  for (const n of numbers) {
    const last = ranges.at(-1);
    if (last && last[1] === n - 1) last[1] = n;
    else ranges.push([n, n]);
  }
  return ranges.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(', ');
}

/** Three sources state the number of experts of a layer; a disagreement is one error with all three numbers. */
export function requireExpertCount(
  directory: string,
  layer: number,
  counts: { readonly config: number; readonly routerRows: number; readonly tensors: number },
): void {
  const { config, routerRows, tensors } = counts;
  if (config === routerRows && config === tensors) return;
  throw new ConfigError(
    'EXPERT_COUNT_MISMATCH',
    `${directory}: layer ${layer} has ${config} experts by config.json, ${routerRows} router rows and ${tensors} experts with tensors`,
    {
      hint: 'config.json and weights belong to different models: take both from one place',
      details: { layer, ...counts },
    },
  );
}
