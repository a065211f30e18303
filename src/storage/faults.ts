/** Faults on purpose: how tests see a failing disk. Readers apply the plan to the n-th read of their pool. */

import { UsageError } from '../common/errors.ts';
import { alignDown } from '../common/units.ts';
import { PAGE } from './record-table.ts';

/**
 * `eio`: the n-th read fails as a broken disk does. `short`: it gives half of its pages, and the file seems to end there.
 * `slow`: it and every later read take SLOW_READ_MS longer. `exit`: the reader ends without a word, as when its memory is
 * exhausted. `hold`: it waits until word 0 of `gate` is no longer 0.
 */
export type FaultKind = 'eio' | 'short' | 'slow' | 'exit' | 'hold';

export interface FaultPlan {
  /** Counts from 1. */
  readonly nth: number;
  readonly kind: FaultKind;
  /** Shared memory; for `hold` only. */
  readonly gate?: Int32Array;
}

export const SLOW_READ_MS = 50;

/** As fs.readSync: `length` bytes from `position` of a file into `target` at `offset`; gives the count. */
export type ReadFunction = (fd: number, target: Uint8Array, offset: number, length: number, position: number) => number;

/** "3:eio" -> the third read fails. `hold` cannot be written: it needs a gate. */
export function parseFaultPlan(text: string): FaultPlan {
  const match = /^([1-9]\d{0,8}):(eio|short|slow|exit)$/.exec(text);
  if (!match) {
    throw new UsageError('BAD_FAULT_PLAN', `"${text}" is not a fault plan`, {
      hint: 'write NUMBER:KIND with KIND one of eio, short, slow, exit; for example 3:eio',
    });
  }
  return { nth: Number(match[1]), kind: match[2] as FaultKind };
}

/** Wraps a read function. `counter`: one shared word that counts the reads of all readers. */
export function withFaults(read: ReadFunction, plan: FaultPlan, counter: Int32Array): ReadFunction {
  let endOfFile = -1;
  return (fd, target, offset, length, position) => {
    const nth = Atomics.add(counter, 0, 1) + 1;
    if (endOfFile === fd) {
      endOfFile = -1;
      return 0;
    }
    if (plan.kind === 'slow' && nth >= plan.nth) pause(SLOW_READ_MS);
    if (nth !== plan.nth) return read(fd, target, offset, length, position);
    if (plan.kind === 'eio') {
      throw Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO', errno: -5, syscall: 'read' });
    }
    if (plan.kind === 'exit') process.exit(1);
    if (plan.kind === 'hold' && plan.gate) Atomics.wait(plan.gate, 0, 0);
    if (plan.kind !== 'short') return read(fd, target, offset, length, position);
    const half = alignDown(read(fd, target, offset, length, position) / 2, PAGE);
    if (half > 0) endOfFile = fd;
    return half;
  };
}

function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}
