import { describe, expect, test } from 'vitest';
import { type FaultPlan, parseFaultPlan, withFaults } from './faults.ts';
import { PAGE } from './record-table.ts';

const buffer = new Uint8Array(4 * PAGE);

/** Results of four reads of 4 pages of one file under a plan; errors by code. */
function fourReads(plan: FaultPlan): (number | string)[] {
  const read = withFaults((_fd, _target, _offset, length) => length, plan, new Int32Array(1));
  return Array.from({ length: 4 }, () => {
    try {
      return read(9, buffer, 0, buffer.length, 0);
    } catch (error) {
      return (error as NodeJS.ErrnoException).code ?? 'no code';
    }
  });
}

describe('fault plans', () => {
  test('eio fails exactly the n-th read', () => {
    expect(fourReads({ nth: 2, kind: 'eio' })).toEqual([4 * PAGE, 'EIO', 4 * PAGE, 4 * PAGE]);
  });

  test('short gives half and then the end of the file', () => {
    expect(fourReads({ nth: 2, kind: 'short' })).toEqual([4 * PAGE, 2 * PAGE, 0, 4 * PAGE]);
  });

  test('slow changes no result', () => {
    expect(fourReads({ nth: 3, kind: 'slow' })).toEqual([1, 2, 3, 4].map(() => 4 * PAGE));
  });

  test('several readers count together', () => {
    const counter = new Int32Array(new SharedArrayBuffer(4));
    const plan = { nth: 2, kind: 'eio' } as const;
    const [first, second] = [0, 1].map(() => withFaults(() => 1, plan, counter));
    expect(first(9, buffer, 0, 1, 0)).toBe(1);
    expect(() => second(9, buffer, 0, 1, 0)).toThrow('EIO');
  });

  test('are read from text', () => {
    expect(parseFaultPlan('3:eio')).toEqual({ nth: 3, kind: 'eio' });
    expect(parseFaultPlan('12:short')).toEqual({ nth: 12, kind: 'short' });
  });

  test.each(['', 'eio', '0:eio', '-1:eio', '3:hold', '3:EIO', '3:eio ', '1e3:eio'])('"%s" is refused', text => {
    expect(() => parseFaultPlan(text)).toThrow(expect.objectContaining({ code: 'BAD_FAULT_PLAN' }));
  });
});
