/**
 * What the machine gives to a loaded model, measured with the engine's own threads, readers and memory, so that nothing is taken
 * beyond the plan. Experts in memory are given up on the way.
 */

import { median } from '../common/median.ts';
import { MIB } from '../common/units.ts';
import type { Place } from '../compute/arenas.ts';
import type { Compute } from '../compute/compute.ts';
import { Op } from '../kernels/commands.ts';
import { GROUP, LAYOUT_ID, layoutBytes, TILE_ROWS } from '../quant/layouts.ts';
import type { ReadPool } from '../storage/read-pool.ts';
import type { SpeedLimits } from '../telemetry/speed.ts';
import { trafficOf } from './plan-facts.ts';
import type { Runtime } from './runtime.ts';
import type { Session } from './session.ts';

/** Long enough to pass the bursts that virtual disks allow; a slow disk ends it by time. */
const DISK_BYTES = 1e9;
const DISK_MS = 1000;
/** Tokens computed again: the middle one counts. So many at most, and no more after so long, but never fewer than the least. */
const REPLAYS = 9;
const LEAST_REPLAYS = 3;
const REPLAY_MS = 2000;
/** Larger than the caches of most processors; and read into just before, for pages never written would all be the same page. */
const MEMORY_BYTES = 256 * MIB;
const MEMORY_MS = 200;
const MEMORY_PASSES = 3;
const COLUMNS = 2048;
/** Rows of one matrix of the memory's measurement: a few megabytes. */
const MATRIX_ROWS = 2048;
/** Bytes from disk that go through the page cache are written, read and written again. */
const BUFFERED_COPIES = 3;

/** `session`: one with tokens, whose last one is computed again; it ends as it was. Blocks for a few seconds. */
export function measureLimits(runtime: Runtime, session: Session | null, pool: ReadPool): SpeedLimits {
  const { files, info, store, compute } = runtime;
  const computeUs = session && session.length > 0 ? replay(runtime, session) : null;
  const places = store.vacate();
  const diskBytesPerSecond = diskRate(runtime, pool, places);
  const { denseBytes, kvBytes } = trafficOf(files, { kv: info.kv }, session?.length ?? 0);
  return {
    diskBytesPerSecond,
    memoryBytesPerSecond: memoryRate(compute, places, info.plan.slotBytes),
    computeUs,
    denseBytes,
    kvBytes,
    copies: info.directIo ? 1 : BUFFERED_COPIES,
    readers: info.readers,
  };
}

/** Microseconds of one token with its experts in memory. */
function replay(runtime: Runtime, session: Session): number {
  const { store, model } = runtime;
  const id = session.ids[session.length - 1];
  const times: number[] = [];
  const begun = performance.now();
  const { passDone } = runtime;
  runtime.passDone = () => {};
  try {
    store.unobserved(() => {
      for (let i = 0; i < REPLAYS && (i < LEAST_REPLAYS || performance.now() - begun < REPLAY_MS); i++) {
        session.truncate(session.length - 1);
        session.repair();
        const before = store.counters.waitUs;
        const start = performance.now();
        session.feed([id]);
        model.logits(0, 1);
        times.push((performance.now() - start) * 1000 - (store.counters.waitUs - before));
      }
      store.settle();
    });
  } finally {
    runtime.passDone = passDone;
  }
  return median(times);
}

/** Bytes per second of random experts; null without a place to read to, or when a read fails. */
function diskRate({ files }: Runtime, pool: ReadPool, places: readonly Place[]): number | null {
  const { records, shape } = files;
  const firsts = records.firstExpert.filter(first => first >= 0);
  const experts = firsts.length * shape.experts;
  const atOnce = Math.min(places.length, 2 * pool.readers);
  if (atOnce === 0 || experts === 0) return null;
  const tickets = new Array<number>(atOnce).fill(-1);
  let next = 0;
  let bytes = 0;
  let inFlight = 0;
  let failed = false;
  const begun = performance.now();
  const isOver = () => failed || bytes >= DISK_BYTES || performance.now() - begun >= DISK_MS;
  do {
    for (let i = 0; i < atOnce; i++) {
      if (tickets[i] >= 0) {
        const state = pool.state(tickets[i]);
        if (state === 'queued' || state === 'running') continue;
        try {
          bytes += pool.finish(tickets[i]).bytes;
        } catch {
          // the others in flight must end: they go to slots that are used again
          failed = true;
        }
        tickets[i] = -1;
        inFlight--;
      }
      if (isOver()) continue;
      const expert = scattered(next, experts);
      const record = firsts[Math.floor(expert / shape.experts)] + (expert % shape.experts);
      // each read of those in flight together has places of its own
      const place = places[i + atOnce * (next % Math.floor(places.length / atOnce))];
      tickets[i] = pool.submit(record, place.arena, place.offset, 'demand');
      next++;
      inFlight++;
    }
    if (inFlight > 0) pool.waitAny(100);
  } while (inFlight > 0);
  const seconds = (performance.now() - begun) / 1000;
  return bytes > 0 && !failed ? bytes / seconds : null;
}

/** The n-th of `count` numbers in an order that jumps about and comes round to each. */
function scattered(n: number, count: number): number {
  const step = Math.floor(count * 0.618) | 1;
  let stride = step;
  while (gcd(stride, count) > 1) stride += 2;
  return (n * stride) % count;
}

function gcd(a: number, b: number): number {
  return b === 0 ? a : gcd(b, a % b);
}

/** Bytes per second of all lanes, reading as a matrix what lies in the slots of one arena; null when that is too little. */
function memoryRate(compute: Compute, places: readonly Place[], slotBytes: number): number | null {
  const [first] = places;
  if (!first) return null;
  const { arena } = first;
  const from = first.offset;
  let bytes = 0;
  // those that follow each other
  for (const place of places) {
    if (place.arena !== arena || place.offset !== from + bytes || bytes >= MEMORY_BYTES) break;
    bytes += slotBytes;
  }
  const panelBytes = layoutBytes('q8g64', TILE_ROWS, COLUMNS);
  const rows = Math.min(MATRIX_ROWS, Math.floor(bytes / panelBytes) * TILE_ROWS);
  const groups = COLUMNS / GROUP;
  const { scratch, lanes } = compute;
  const need = COLUMNS + 8 * groups + rows * 4;
  if (rows === 0 || need > scratch.rows * scratch.columns * 4) return null;
  const matrixBytes = (rows / TILE_ROWS) * panelBytes;
  const matrices = Math.floor(bytes / matrixBytes);
  const codes = scratch.at[arena];
  const scales = codes + COLUMNS;
  const sums = scales + groups * 4;
  const y = sums + groups * 4;
  const pass = () => {
    for (let i = 0; i < matrices; i++) {
      const at = lanes.command(Op.matmulTiles, arena, rows / TILE_ROWS, COLUMNS * TILE_ROWS);
      const given = [LAYOUT_ID.q8g64, from + i * matrixBytes, rows, groups, codes, scales, sums, 0, y, rows, 0, 1];
      for (const [p, value] of given.entries()) lanes.control.unsigned[at + p] = value;
      lanes.run();
    }
  };
  pass();
  let best = 0;
  const begun = performance.now();
  for (let i = 0; i < MEMORY_PASSES || performance.now() - begun < MEMORY_MS; i++) {
    const start = performance.now();
    pass();
    best = Math.max(best, (matrices * matrixBytes * 1000) / (performance.now() - start));
    if (performance.now() - begun > REPLAY_MS) break;
  }
  return best;
}
