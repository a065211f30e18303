/** Trying again: how often, and after how long. */

import { setTimeout as delay } from 'node:timers/promises';
import { HubError } from '../common/errors.ts';
import { PassingFailure } from './refusals.ts';

/** A question of some kB: after this many tries (about 8 seconds) somebody should look. */
const QUESTION_TRIES = 5;
/** A long download sits out about two minutes without a network. */
export const DOWNLOAD_TRIES = 10;

export interface Timing {
  /** Wait before the second try; each later one waits twice as long. */
  readonly firstWaitMs: number;
  readonly longestWaitMs: number;
  /** A connection that brings nothing for so long counts as broken. */
  readonly idleMs: number;
}

export const DEFAULT_TIMING: Timing = { firstWaitMs: 500, longestWaitMs: 30_000, idleMs: 30_000 };

/** What `tries` failures in a row are worth, unless the hub asked for another time. */
export function waitBefore(timing: Timing, tries: number, askedMs: number | null): number {
  const own = Math.min(timing.firstWaitMs * 2 ** (tries - 1), timing.longestWaitMs);
  return Math.max(own, askedMs ?? 0);
}

/** Rejects with HUB_STOPPED when the signal aborts. */
export async function pause(ms: number, signal?: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => {});
  throwIfStopped(signal);
}

export function throwIfStopped(signal?: AbortSignal): void {
  if (!signal?.aborted) return;
  if (signal.reason instanceof HubError) throw signal.reason;
  throw new HubError('HUB_STOPPED', 'stopped', { hint: 'the same command continues where this one ended' });
}

/** Asks again while the failure may pass. */
export async function retrying<T>(timing: Timing, signal: AbortSignal | undefined, ask: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await ask();
    } catch (error) {
      throwIfStopped(signal);
      if (!(error instanceof PassingFailure)) throw error;
      if (tries === QUESTION_TRIES) throw error.error;
      await pause(waitBefore(timing, tries, error.waitMs), signal);
    }
  }
}
