/** Entry of a compute worker: waits for jobs, claims chunks, meets the others. */

import { parentPort, workerData } from 'node:worker_threads';
import { osThreadId } from '../common/os-thread.ts';
import type { KernelName } from '../kernels/kernels.ts';
import { kernelsFor, runnerFor } from '../kernels/select.ts';
import { ARRIVED, FAILED, GENERATION, PARKED, STOP, viewControl, waitWhile } from './control.ts';
import { workOnJob } from './job.ts';

export interface LaneData {
  lane: number;
  control: SharedArrayBuffer;
  memories: WebAssembly.Memory[];
  kernels: KernelName;
  module: WebAssembly.Module | null;
}

/** Sent once, before the first job. */
export interface LaneReady {
  /** The system's id of the thread, or 0 where it cannot be found out. */
  readonly thread: number;
}

const data = workerData as LaneData;
const control = viewControl(data.control);
const factory = kernelsFor(data.kernels, data.module);
const runners = data.memories.map(memory => runnerFor(factory(memory), memory, control));

let seen = Atomics.load(control.words, GENERATION);
parentPort?.postMessage({ thread: osThreadId() } satisfies LaneReady);

while (Atomics.load(control.words, STOP) === 0) {
  seen = waitWhile(control.words, GENERATION, seen, PARKED);
  if (Atomics.load(control.words, STOP) !== 0) break;
  try {
    workOnJob(control, runners, data.lane);
  } catch (error) {
    console.error(error);
    Atomics.store(control.words, FAILED, data.lane);
  }
  Atomics.add(control.words, ARRIVED, 1);
  Atomics.notify(control.words, ARRIVED);
}
