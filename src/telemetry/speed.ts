/**
 * How fast an engine is against what its machine allows: phi = the ceiling's time of a token / the measured one. The ceiling is the
 * best overlap of disk, memory and arithmetic: the longest of the three. The machine is measured after the run and may be slower then:
 * what the run itself has reached is a limit that holds too, so phi is never above 1.
 */

import type { Numbers } from './fields.ts';

/** What the machine gives to this model, measured by the engine itself. Null: could not be measured. */
export interface SpeedLimits {
  /** Bytes per second: experts in random order, by the engine's readers into its slots. */
  readonly diskBytesPerSecond: number | null;
  /** Bytes per second: all lanes reading large matrices. */
  readonly memoryBytesPerSecond: number | null;
  /** One token computed again with its experts in memory; what it still waited for is not counted. */
  readonly computeUs: number | null;
  /** Weights that every token reads, and keys, values and states at the length of the conversation. */
  readonly denseBytes: number;
  readonly kvBytes: number;
  /** Times that memory moves a byte from disk: 1 when it is read directly, 3 through the page cache. */
  readonly copies: number;
  readonly readers: number;
}

export type Limit = 'disk' | 'DRAM' | 'compute' | 'latency';

/** Of one decoded token. */
export interface Speed {
  readonly tokens: number;
  readonly measuredUs: number;
  readonly neededBytes: number;
  readonly touchedBytes: number;
  /** The times that each limit allows, at most what the run took; null where it was not measured. */
  readonly diskUs: number | null;
  readonly memoryUs: number | null;
  readonly computeUs: number | null;
  /** Longest of the three, and disk after arithmetic: what an engine needs that does one at a time. */
  readonly ceilingUs: number;
  readonly serialUs: number;
  readonly phi: number;
  readonly phiSerial: number;
  readonly limit: Limit;
}

/** Arithmetic that gets so much of the memory's speed waits for memory. */
const MEMORY_BOUND_SHARE = 0.7;
/** When disk and arithmetic one after the other explain less of the time than this, something else takes it: waking, small reads. */
const EXPLAINED_SHARE = 0.6;

/** From the sums of decoding steps; null when nothing was decoded or nothing of the machine is known. */
export function speedOf(decode: Numbers, limits: SpeedLimits): Speed | null {
  const tokens = decode['decodeRows'];
  const { diskBytesPerSecond, memoryBytesPerSecond } = limits;
  if (!(tokens > 0) || (diskBytesPerSecond === null && memoryBytesPerSecond === null && limits.computeUs === null))
    return null;
  const measuredUs = decode['totalUs'] / tokens;
  // all its arithmetic was done while it did not wait
  const computeUs = atMost(limits.computeUs, measuredUs - decode['waitUs'] / tokens);
  const { pinnedBytes, cachedBytes, aheadBytes, diskBytes } = decode;
  // reads ahead that were used are needed too; those in vain are not
  const neededBytes = (aheadBytes + diskBytes) / tokens;
  const experts = (pinnedBytes + cachedBytes) / tokens + neededBytes;
  const resident = ((limits.denseBytes + limits.kvBytes) * decode['steps']) / tokens;
  const touchedBytes = resident + experts + limits.copies * neededBytes;
  const diskUs = atMost(timeOf(neededBytes, diskBytesPerSecond), measuredUs);
  // a token computed again has read as much, without the disk's part
  const fromReplay = computeUs === null ? 0 : ((limits.denseBytes + limits.kvBytes + experts) / computeUs) * 1e6;
  const memorySpeed = memoryBytesPerSecond && Math.max(memoryBytesPerSecond, fromReplay);
  const memoryUs = atMost(timeOf(touchedBytes, memorySpeed), measuredUs);
  const arithmeticUs = Math.max(memoryUs ?? 0, computeUs ?? 0);
  const ceilingUs = Math.max(diskUs ?? 0, arithmeticUs);
  const serialUs = (diskUs ?? 0) + arithmeticUs;
  let limit: Limit = (memoryUs ?? 0) >= MEMORY_BOUND_SHARE * (computeUs ?? 0) ? 'DRAM' : 'compute';
  if ((diskUs ?? 0) >= arithmeticUs) limit = 'disk';
  if (serialUs < EXPLAINED_SHARE * measuredUs) limit = 'latency';
  const phi = ceilingUs / measuredUs;
  const phiSerial = serialUs / measuredUs;
  return {
    tokens,
    measuredUs,
    neededBytes,
    touchedBytes,
    diskUs,
    memoryUs,
    computeUs,
    ceilingUs,
    serialUs,
    phi,
    phiSerial,
    limit,
  };
}

function timeOf(bytes: number, bytesPerSecond: number | null): number | null {
  return bytesPerSecond === null ? null : (bytes / bytesPerSecond) * 1e6;
}

function atMost(us: number | null, reachedUs: number): number | null {
  return us === null ? null : Math.min(us, reachedUs);
}
