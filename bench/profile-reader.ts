/** Worker of the memory measurement: looks for an absent byte in its part of the memory, when told to. */

import { parentPort, workerData } from 'node:worker_threads';
import { ABSENT, ARRIVED, type ReaderData, ROUND } from './profile-memory.ts';

const { control, memory, offset, length } = workerData as ReaderData;
const words = new Int32Array(control);
const bytes = Buffer.from(memory, offset, length);
parentPort!.postMessage('ready');
for (let round = 1; ; round++) {
  while (Atomics.load(words, ROUND) < round) {
    // the start of a round must not wait for the system
  }
  if (bytes.indexOf(ABSENT) >= 0) throw new Error('the byte is there');
  Atomics.add(words, ARRIVED, 1);
}
