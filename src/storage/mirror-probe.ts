/** How fast each drive of a pool is, measured as the engine reads: same readers, same files, records of the model, direct. */

import { MIB } from '../common/units.ts';
import { mixed } from './mirror-route.ts';
import type { ReadPool } from './read-pool.ts';

/** Enough that the first slow read of a drive that slept does not decide; a start is not to feel it. */
const PROBE_BYTES = 256 * MIB;
const PROBE_MS = 150;
/** One read that runs and one that waits for each reader. */
const READS_PER_READER = 2;

export interface ProbeOptions {
  /** Records worth measuring with: experts, the larger the better. */
  readonly records: readonly number[];
  /** Where they may be put; what is there is lost. Each has room for the largest record. */
  readonly places: readonly { readonly arena: number; readonly offset: number }[];
  /** Milliseconds; default: the machine's clock. */
  readonly now?: () => number;
}

/**
 * Bytes per second of the model's drive and of every mirror; 0 for one that has none of the records. Afterwards every record
 * comes from the model's own drive again, so `route` is to be called. Throws what a read from the model's own drive throws.
 */
export function probeDrives(
  pool: ReadPool,
  { records, places, now = () => performance.now() }: ProbeOptions,
): number[] {
  // the same records first for every drive, and not in the order of the file
  const order = [...records].sort((a, b) => mixed(a) - mixed(b));
  const speeds = Array.from({ length: pool.drives.mirrors.length + 1 }, (_, drive) => {
    const own = pool.drives.routeAll(drive, order);
    return own.length === 0 ? 0 : readSome(pool, own, places, now);
  });
  pool.drives.routeAll(0, []);
  return speeds;
}

/** Each record at most once: a second read of a file that is not read directly would measure memory. */
function readSome(
  pool: ReadPool,
  records: readonly number[],
  places: ProbeOptions['places'],
  now: () => number,
): number {
  const depth = Math.min(places.length, pool.readers * READS_PER_READER);
  const tickets = new Array<number>(depth).fill(-1);
  const began = now();
  let submitted = 0;
  let inFlight = 0;
  let bytes = 0;
  do {
    for (let place = 0; place < depth; place++) {
      if (tickets[place] >= 0) {
        const state = pool.state(tickets[place]);
        if (state === 'queued' || state === 'running') continue;
        bytes += pool.finish(tickets[place]).bytes;
        tickets[place] = -1;
        inFlight--;
      }
      if (submitted === records.length || bytes >= PROBE_BYTES || now() - began >= PROBE_MS) continue;
      const { arena, offset } = places[place];
      tickets[place] = pool.submit(records[submitted++], arena, offset, 'demand');
      inFlight++;
    }
    if (inFlight > 0) pool.waitAny(Number.POSITIVE_INFINITY);
  } while (inFlight > 0);
  return (bytes / Math.max(now() - began, 0.001)) * 1000;
}
