/**
 * What an engine keeps of its routing: a trace for the user (`--trace`), and the last passes for the choice of an eviction policy. Only
 * the first can fail an opening; nothing here fails a request.
 */

import { basename, dirname } from 'node:path';
import { MIB } from '../common/units.ts';
import { replaceFile } from '../common/whole-file.ts';
import { DEFAULT_POLICY, type PolicyName } from '../experts/policies/policies.ts';
import { choosePolicy } from '../experts/replay/choose.ts';
import { RecentTrace, TraceFile } from '../experts/replay/recorder.ts';
import type { Trace, TraceHeader } from '../experts/replay/trace.ts';
import { readTrace } from '../experts/replay/trace-format.ts';
import type { LeaseObserver } from '../experts/store.ts';
import type { EngineOptions } from './api.ts';
import { modelIdentity } from './identity.ts';
import { makeDirectory } from './kv-directory.ts';
import type { ModelFiles } from './model-files.ts';
import { usagePlaces } from './usage-place.ts';

/** About so many tokens are remembered, or of the largest models as many as fit. */
const RECENT_TOKENS = 2000;
const MAX_RECENT_BYTES = MIB;
/** Of a lease in a trace, besides a byte for each expert. */
const LEASE_BYTES = 6;
/** Opening may take this much longer to choose. */
const CHOICE_MS = 300;
const SUFFIX = '.trace';

export function traceHeader(files: Pick<ModelFiles, 'checkpoint' | 'shape' | 'records' | 'table'>): TraceHeader {
  const { shape, records, table, checkpoint } = files;
  return {
    model: modelIdentity(files),
    label: basename(checkpoint.directory),
    experts: shape.experts,
    topK: shape.topK,
    expertBytes: records.firstExpert.map(first => (first < 0 ? 0 : table.readBytes(first))),
  };
}

export class Routing {
  readonly observers: readonly LeaseObserver[];
  readonly #file: TraceFile | null;
  readonly #recent: RecentTrace | null;
  readonly #recentPath: string | null;
  /** What earlier engines have left. */
  readonly #before: Trace | null;
  readonly #header: TraceHeader;
  readonly #options: EngineOptions;
  readonly #note: (line: string) => void;

  /** `remembers`: the last passes are kept beside the history of use. Throws TRACE_UNWRITABLE. */
  constructor(files: ModelFiles, options: EngineOptions, remembers: boolean, note: (line: string) => void) {
    this.#options = options;
    this.#note = note;
    this.#header = traceHeader(files);
    this.#file = options.trace === undefined ? null : new TraceFile(options.trace, this.#header, note);
    const { directory } = files.checkpoint;
    this.#recentPath = remembers
      ? (usagePlaces(directory, this.#header.model).find(place => place.writable)?.path ?? null)
      : null;
    this.#before = this.#readBefore();
    this.#recent =
      this.#recentPath === null ? null : new RecentTrace(this.#header, recentBytes(this.#header), this.#before);
    this.observers = [this.#file, this.#recent].filter(observer => observer !== null);
  }

  /** The policy that was asked for, or the one that would have served the last passes best. */
  policy(slots: number): PolicyName {
    const { policy = 'auto' } = this.#options;
    if (policy !== 'auto') return policy;
    const { experts, expertBytes } = this.#header;
    if (slots >= experts * expertBytes.filter(bytes => bytes > 0).length) return DEFAULT_POLICY;
    const chosen = choosePolicy(this.#before, slots, CHOICE_MS);
    if (chosen.policy !== DEFAULT_POLICY) {
      const percent = (name: PolicyName) => `${((chosen.hitRates[name] ?? 0) * 100).toFixed(1)} %`;
      this.#note(
        `policy ${chosen.policy}: the last texts would have found ${percent(chosen.policy)} of the experts in memory, ${percent(DEFAULT_POLICY)} with ${DEFAULT_POLICY}`,
      );
    }
    return chosen.policy;
  }

  passDone(): void {
    this.#file?.flush(false);
  }

  /** While no request runs. */
  safePoint(): void {
    this.#file?.flush(true);
  }

  close(): void {
    this.#file?.close();
    this.#saveRecent();
  }

  #readBefore(): Trace | null {
    if (this.#recentPath === null) return null;
    try {
      const trace = readTrace(this.#recentPath + SUFFIX);
      const { model, experts, expertBytes } = trace.header;
      const isOurs =
        model === this.#header.model &&
        experts === this.#header.experts &&
        expertBytes.join() === this.#header.expertBytes.join();
      return isOurs ? trace : null;
    } catch {
      // it is only a memory of what was: without it the default is used
      return null;
    }
  }

  #saveRecent(): void {
    if (this.#recentPath === null || this.#recent === null || !this.#recent.isNew) return;
    const path = this.#recentPath + SUFFIX;
    try {
      makeDirectory(dirname(path));
      replaceFile(path, this.#recent.bytes());
    } catch {
      // the next engine goes by what was kept before
    }
  }
}

function recentBytes({ topK, expertBytes }: TraceHeader): number {
  const layers = expertBytes.filter(bytes => bytes > 0).length;
  return Math.min(MAX_RECENT_BYTES, 2 * RECENT_TOKENS * layers * (LEASE_BYTES + topK));
}
