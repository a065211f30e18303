/** What the expert store did. Service time is what the disk took, wait time what the forward pass felt. */
export interface ExpertCounters {
  /** Distinct experts asked for, summed over layers and forward passes; hits + misses. */
  requests: number;
  hits: number;
  misses: number;
  /** Hits that were pinned, and those that reads ahead had brought or were bringing; the others were simply still there. */
  pinnedHits: number;
  aheadHits: number;
  /** Of aheadHits, those that were still being read: they shortened a wait instead of saving it. */
  aheadLate: number;
  /** Experts asked for by layers that had been guessed about, and those of them that were among the guesses, in memory or not. */
  guessable: number;
  guessed: number;
  /** How often `--prefetch auto` has changed its mind. */
  lookAheadChanges: number;
  /** Size of the experts behind hits, pinnedHits and misses; that behind aheadHits is usefulBytes. */
  hitBytes: number;
  pinnedBytes: number;
  missBytes: number;
  /** Bytes read for demands and for reads ahead. */
  bytesRead: number;
  /** Reads ahead that were not called off before they began, and those of them that nobody used. */
  prefetched: number;
  wasted: number;
  /** Bytes of reads ahead that were used, and of those that were not. */
  usefulBytes: number;
  wastedBytes: number;
  /** Hot experts that were read into empty slots before anybody asked for them, and those of them that were asked for later. */
  warmed: number;
  warmHits: number;
  /** Pins that went to other experts. */
  pinSwaps: number;
  serviceUs: number;
  waitUs: number;
}

export function zeroCounters(): ExpertCounters {
  return {
    requests: 0,
    hits: 0,
    misses: 0,
    pinnedHits: 0,
    aheadHits: 0,
    aheadLate: 0,
    guessable: 0,
    guessed: 0,
    lookAheadChanges: 0,
    hitBytes: 0,
    pinnedBytes: 0,
    missBytes: 0,
    bytesRead: 0,
    prefetched: 0,
    wasted: 0,
    usefulBytes: 0,
    wastedBytes: 0,
    warmed: 0,
    warmHits: 0,
    pinSwaps: 0,
    serviceUs: 0,
    waitUs: 0,
  };
}

/** What happened between two readings. */
export function countersSince(now: ExpertCounters, before: ExpertCounters): ExpertCounters {
  const result = zeroCounters();
  for (const key of Object.keys(result) as (keyof ExpertCounters)[]) result[key] = now[key] - before[key];
  return result;
}
