/**
 * What an engine keeps of its routing: a trace for the user (`--trace`), and the last passes for the choice of an eviction policy. Only
 * the first can fail an opening; nothing here fails a request.
 */

import { basename, dirname } from 'node:path';
import { makeDirectory } from '../common/file-system.ts';
import { MIB } from '../common/units.ts';
import { replaceFile } from '../common/whole-file.ts';
import { DEFAULT_POLICY, type PolicyName } from '../experts/policies/policies.ts';
import { choosePolicy } from '../experts/replay/choose.ts';
import { RecentTrace, TraceFile, traceBufferBytes } from '../experts/replay/recorder.ts';
import type { Trace, TraceHeader } from '../experts/replay/trace.ts';
import { readTrace } from '../experts/replay/trace-format.ts';
import type { LeaseObserver } from '../experts/store.ts';
import type { EngineOptions } from './api.ts';
import { modelIdentity } from './identity.ts';
import type { ModelFiles } from './model-files.ts';
import { usagePlaces } from './usage-place.ts';

/** About so many tokens are remembered, or of the largest models as many as fit. */
const RECENT_TOKENS = 2000;
const MAX_RECENT_BYTES = MIB;
/** Of a lease in a trace, besides a byte for each expert. */
const LEASE_BYTES = 6;
/** Opening may take this much longer to choose. */
const CHOICE_MS = 300;
/** Behind the name of the history: the last passes. */
export const RECENT_SUFFIX = '.trace';
/**
 * What is remembered is in memory as it was read and as numbers, for which arrays grow by doubling, while it is copied to where it stays; and
 * at the end once more as a file.
 */
const RECENT_COPIES = 6;

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
  /** What earlier engines have left, until a policy is chosen. */
  #before: Trace | null;
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
    this.#before = this.#recentPath === null ? null : readRecent(this.#recentPath, this.#header);
    const bytes = recentBytes({ topK: this.#header.topK, layers: routingLayers(this.#header) });
    this.#recent = this.#recentPath === null ? null : new RecentTrace(this.#header, bytes, this.#before);
    this.observers = [this.#file, this.#recent].filter(observer => observer !== null);
  }

  /** The policy that was asked for, or the one that would have served the last passes best. */
  policy(slots: number): PolicyName {
    const { policy = 'auto' } = this.#options;
    const before = this.#before;
    this.#before = null;
    if (policy !== 'auto') return policy;
    const { experts } = this.#header;
    if (slots >= experts * routingLayers(this.#header)) return DEFAULT_POLICY;
    const chosen = choosePolicy(before, slots, CHOICE_MS);
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

  #saveRecent(): void {
    if (this.#recentPath === null || this.#recent === null || !this.#recent.isNew) return;
    const path = this.#recentPath + RECENT_SUFFIX;
    try {
      makeDirectory(dirname(path));
      replaceFile(path, this.#recent.bytes());
    } catch {
      // the next engine goes by what was kept before
    }
  }
}

/** What engines have kept of their last passes with this model; null when there is nothing, or nothing that can be read. */
export function recentTrace(files: ModelFiles): Trace | null {
  const header = traceHeader(files);
  const place = usagePlaces(files.checkpoint.directory, header.model).find(({ writable }) => writable);
  return place ? readRecent(place.path, header) : null;
}

function readRecent(path: string, { model, experts, expertBytes }: TraceHeader): Trace | null {
  try {
    const trace = readTrace(path + RECENT_SUFFIX);
    const { header } = trace;
    const isOurs =
      header.model === model && header.experts === experts && header.expertBytes.join() === expertBytes.join();
    return isOurs ? trace : null;
  } catch {
    // it is only a memory of what was: without it the default is used
    return null;
  }
}

function routingLayers({ expertBytes }: TraceHeader): number {
  return expertBytes.filter(bytes => bytes > 0).length;
}

function recentBytes({ topK, layers }: { readonly topK: number; readonly layers: number }): number {
  return Math.min(MAX_RECENT_BYTES, 2 * RECENT_TOKENS * layers * (LEASE_BYTES + topK));
}

/** The most memory that all this takes; `layers`: those that route. */
export function routingBytes(shape: {
  readonly layers: number;
  readonly experts: number;
  readonly topK: number;
}): number {
  return RECENT_COPIES * recentBytes(shape) + traceBufferBytes(shape.layers, shape.experts);
}
