/** Filling and pinning of slots by the history of use, in the times in which no request runs. */

import { setTimeout } from 'node:timers/promises';
import { MIN_TOKENS } from '../experts/usage/pins.ts';
import { Placement } from '../experts/usage/placement.ts';
import type { EngineInfo } from './api.ts';
import type { Runtime } from './runtime.ts';
import type { UsageHistory } from './usage.ts';

/** Who opens an engine for one request sends it within this time; its reads are not to wait for guesses. */
const IDLE_BEFORE_MS = 100;
/** Between two looks at what has been read: a request that comes waits for this at most. */
const LOOK_EVERY_MS = 1;

/** What to tell where pins are wanted and none are possible; null otherwise. */
export function pinNote({ policy, usage }: Pick<EngineInfo, 'policy' | 'usage'>, pinned: number): string | null {
  if (policy !== 'pin' || pinned > 0) return null;
  if (usage.mode === 'off') return 'policy pin keeps no expert for good: there is no history with --usage off';
  const why =
    usage.tokens < MIN_TOKENS
      ? `knows ${usage.tokens} tokens, and ${MIN_TOKENS} are needed`
      : 'finds none for so few slots';
  return `policy pin keeps no expert for good: the history of use ${why}`;
}

export class IdlePlacement {
  readonly #placement: Placement;
  readonly #history: UsageHistory;
  #idleSinceMs: number | null = null;
  /** Slots are being filled. */
  #isFilling: boolean;

  constructor({ store, info }: Runtime, history: UsageHistory) {
    this.#history = history;
    const reads = Math.max(1, info.readers - 1);
    this.#placement = new Placement(store, { usage: history.total(), pins: info.policy === 'pin', reads });
    this.#isFilling = this.#placement.hasMore;
  }

  /** Experts that stay for good. */
  get pinned(): number {
    return this.#placement.pinned;
  }

  /** A step of a request was made. */
  busy(): void {
    this.#idleSinceMs = null;
  }

  /** Does a little; false when there is nothing to do. */
  async fill(): Promise<boolean> {
    if (!this.#isFilling) return false;
    this.#idleSinceMs ??= performance.now();
    try {
      if (performance.now() - this.#idleSinceMs >= IDLE_BEFORE_MS) this.#isFilling = this.#placement.fill();
    } catch {
      // readers that have died are told by the request that needs them
      this.#isFilling = false;
    }
    if (this.#isFilling) await setTimeout(LOOK_EVERY_MS);
    return this.#isFilling;
  }

  /** No request runs; before the history is saved. */
  safePoint(): void {
    if (this.#placement.pinned > 0 && this.#history.recent.tokens > 0) this.#placement.exchange(this.#history.total());
  }

  close(): void {
    this.#isFilling = false;
  }
}
