/** What coli trace replay prints. */

import { formatBytes } from '../common/units.ts';
import type { SlotsResult } from '../experts/replay/compare.ts';
import { expertCount, passCount, type Trace } from '../experts/replay/trace.ts';
import { percent } from './report.ts';

export function traceText(file: string, trace: Trace, results: readonly SlotsResult[]): string {
  const { header } = trace;
  const layers = header.expertBytes.filter(bytes => bytes > 0).length;
  const lines = [
    `${file}: ${header.label === '' ? 'a trace' : header.label}`,
    `${passCount(trace)} passes, ${layers} layers of ${header.experts} experts, ${header.topK} chosen by a row; ${trace.ids.length} requests`,
  ];
  if (trace.isCut) lines.push('The file ends within a pass: whoever wrote it was stopped. What came before counts.');
  const rows = [['slots', 'of all', 'policy', 'hits', 'hit rate', 'read', 'regret']];
  for (const { slots, policies } of results) {
    for (const [i, { policy, hits, requests, bytesRead, regret }] of policies.entries()) {
      const first = i === 0 ? [String(slots), percent(slots / expertCount(header), 1)] : ['', ''];
      const told = policy === 'belady' ? '' : percent(regret, 1);
      rows.push([
        ...first,
        policy,
        String(hits),
        percent(requests === 0 ? 0 : hits / requests, 1),
        formatBytes(bytesRead),
        told,
      ]);
    }
  }
  return [
    ...lines,
    '',
    aligned(rows),
    '',
    'belady knows the future: no policy finds more.',
    'regret: the share of its hits that a policy misses.',
  ].join('\n');
}

export function traceJson(file: string, trace: Trace, results: readonly SlotsResult[]): unknown {
  const { header } = trace;
  return {
    version: 1,
    file,
    model: header.model,
    label: header.label,
    experts: header.experts,
    top_k: header.topK,
    expert_bytes: header.expertBytes,
    passes: passCount(trace),
    leases: trace.layer.length,
    requests: trace.ids.length,
    cut: trace.isCut,
    results: results.map(({ slots, policies }) => ({
      slots,
      share: slots / expertCount(header),
      policies: policies.map(({ policy, hits, requests, bytesRead, regret }) => ({
        policy,
        hits,
        hit_rate: requests === 0 ? 0 : hits / requests,
        bytes_read: bytesRead,
        regret,
      })),
    })),
  };
}

/** Names to the left, numbers to the right. */
function aligned(rows: readonly (readonly string[])[]): string {
  const widths = rows[0].map((_, column) => Math.max(...rows.map(row => row[column].length)));
  const cell = (text: string, column: number) =>
    column === 2 ? text.padEnd(widths[2]) : text.padStart(widths[column]);
  return rows.map(row => row.map(cell).join('  ').trimEnd()).join('\n');
}
