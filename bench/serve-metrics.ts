/** Numbers of GET /metrics. */

/** Name (labels included) -> value. */
export type Metrics = ReadonlyMap<string, number>;

export function parseMetrics(text: string): Metrics {
  const rows = text.split('\n').filter(line => line !== '' && !line.startsWith('#'));
  return new Map(rows.map(row => [row.slice(0, row.lastIndexOf(' ')), Number(row.slice(row.lastIndexOf(' ') + 1))]));
}

/** How much a counter grew. */
export function growth(before: Metrics, after: Metrics, name: string): number {
  return (after.get(name) ?? 0) - (before.get(name) ?? 0);
}

/** Tokens decoded together, mean over forward passes. */
export function meanBatch(before: Metrics, after: Metrics): number {
  const steps = growth(before, after, 'coli_engine_decode_steps_total');
  return steps === 0 ? 0 : growth(before, after, 'coli_engine_decode_tokens_total') / steps;
}

/** Value below which a share of the values lies; 0 for none. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.ceil(sorted.length * share) - 1)] ?? 0;
}
