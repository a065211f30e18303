/** Entry of a reader thread: takes requests until the queue closes. It blocks on purpose and has no event loop to speak of. */

import { readSync } from 'node:fs';
import { parentPort, workerData } from 'node:worker_threads';
import { osThreadId } from '../common/os-thread.ts';
import type { PACKERS } from '../quant/pack.ts';
import type { SharedMirrors } from './drives.ts';
import { type FaultPlan, withFaults } from './faults.ts';
import { MirrorState } from './mirror-state.ts';
import { RecordLoader } from './record-loader.ts';
import { RecordTable, type SharedRecordTable } from './record-table.ts';
import { RequestQueue } from './request-queue.ts';

/** Looks at the work word this often (about 10 microseconds) before sleeping: a serial caller asks again at once. */
const SPINS = 200;

export interface ReaderData {
  readonly reader: number;
  readonly table: SharedRecordTable;
  readonly queue: SharedArrayBuffer;
  readonly descriptors: readonly number[];
  readonly mirrors: SharedMirrors | null;
  readonly arenas: readonly WebAssembly.Memory[];
  readonly staging: { readonly arena: number; readonly offset: number } | null;
  readonly verified: Uint8Array | null;
  readonly pieceBytes: number;
  readonly faults: { readonly plan: FaultPlan; readonly counter: Int32Array } | null;
}

/** Sent once, before the first request is taken. */
export interface ReaderReady {
  /** Thread id of the operating system, or 0 where it cannot be found out. */
  readonly thread: number;
}

const data = workerData as ReaderData;
const queue = new RequestQueue(data.queue);
const table = RecordTable.fromShared(data.table);
const packers: typeof PACKERS = table.stagingBytes > 0 ? (await import('../quant/pack.ts')).PACKERS : {};
const loader = new RecordLoader({
  table,
  descriptors: data.descriptors,
  mirrors: data.mirrors && {
    state: new MirrorState(data.mirrors.sizes, data.mirrors.state),
    descriptors: data.mirrors.descriptors,
    staged: data.mirrors.staged,
  },
  arenas: data.arenas.map(arena => new Uint8Array(arena.buffer)),
  staging: data.staging,
  packers,
  verified: data.verified,
  read: data.faults ? withFaults(readSync, data.faults.plan, data.faults.counter) : readSync,
  pieceBytes: data.pieceBytes,
  onProgress: () => queue.noteProgress(),
});

parentPort!.postMessage({ thread: osThreadId() } satisfies ReaderReady);
while (!queue.closing) {
  const seen = queue.workCount();
  const ticket = queue.take(data.reader);
  if (ticket < 0) queue.waitWork(seen, SPINS);
  else serve(ticket);
}

function serve(ticket: number): void {
  try {
    const failed = loader.load(queue.record(ticket), queue.arena(ticket), queue.destination(ticket));
    if (failed) queue.fail(ticket, failed);
    else queue.complete(ticket, loader.readBytes, loader.serviceUs, loader.drive);
  } catch (error) {
    // Only a bug of ours comes here; the request must not wait for ever, and this thread is not to be trusted.
    const text = error instanceof Error ? error.message : String(error);
    queue.fail(ticket, { code: 'READER_DIED', file: -1, offset: 0, expected: 0, got: 0, text });
    throw error;
  }
}
