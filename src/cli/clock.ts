/** Time as the chat with a server needs it; tests have their own. */

import { setTimeout as delay } from 'node:timers/promises';

export interface Clock {
  /** Milliseconds since some moment. */
  now(): number;
  /** Rejects when the signal aborts. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
}

export const systemClock: Clock = {
  now: () => performance.now(),
  sleep: (ms, signal) => delay(ms, undefined, { signal }),
};
