/** coli trace replay: what each eviction policy would have found in memory, and what could be found at all. */

import { existsSync } from 'node:fs';
import { RequestError, UsageError } from '../../common/errors.ts';
import { comparePolicies, defaultSlots } from '../../experts/replay/compare.ts';
import { expertCount } from '../../experts/replay/trace.ts';
import { readTrace } from '../../experts/replay/trace-format.ts';
import { writeJson, writeText } from '../output.ts';
import { Progress } from '../progress.ts';
import { traceJson, traceText } from '../trace-report.ts';

export interface TraceFlags {
  slots?: number[];
  json?: boolean;
}

export async function replayTrace(file: string, flags: TraceFlags): Promise<number> {
  if (!existsSync(file)) {
    throw new RequestError('TRACE_MISSING', `${file}: there is no such file`, { hint: 'record one with --trace FILE' });
  }
  const trace = readTrace(file);
  if (trace.ids.length === 0) {
    throw new RequestError('TRACE_EMPTY', `${file} has no whole pass`, { hint: 'record a longer one with --trace' });
  }
  const slots = flags.slots ?? defaultSlots(trace);
  for (const count of slots) checkSlots(count, trace.header.topK, expertCount(trace.header));
  const progress = new Progress();
  const results = comparePolicies(trace, slots, (done, total) => {
    if (!flags.json) progress.update('replayed', done, total, (n, all) => `${Math.floor((100 * n) / all)} %`);
  });
  progress.clear();
  if (flags.json) writeJson(traceJson(file, trace, results));
  else writeText(traceText(file, trace, results));
  return 0;
}

function checkSlots(slots: number, topK: number, experts: number): void {
  if (slots >= topK && slots <= experts) return;
  throw new UsageError('BAD_SLOTS', `--slots ${slots}: this trace can be replayed with ${topK} to ${experts} slots`, {
    hint: 'leave --slots out for 10, 25, 50 and 75 % of all experts',
    details: { slots },
  });
}
