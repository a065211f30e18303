import fs from 'node:fs';
import os from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { RecentTrace, TraceFile } from './recorder.ts';
import { headerOf } from './test-support.ts';
import { leaseCount, type TraceHeader } from './trace.ts';
import { readTrace } from './trace-format.ts';

const HEADER = headerOf(2, 40, 2, 'a label');
let directory: string;
let notes: string[];

beforeEach(() => {
  directory = fs.mkdtempSync(join(os.tmpdir(), 'coli trace '));
  notes = [];
});
afterEach(() => fs.rmSync(directory, { recursive: true, force: true }));

const path = () => join(directory, 'a.trace');
const open = (header: TraceHeader = HEADER) => new TraceFile(path(), header, line => notes.push(line));

/** Three rows choose two experts each. */
function lease(to: TraceFile | RecentTrace, layer: number, ...experts: number[]): void {
  const uses = new Int32Array(experts.length).fill(1);
  uses[0] += 6 - experts.length;
  to.leaseBegins(layer, Int32Array.from(experts), uses, experts.length);
}

describe('a trace file', () => {
  test('has what was asked for, by how many rows', () => {
    const file = open();
    lease(file, 0, 1, 5, 39);
    lease(file, 1, 0, 2);
    file.close();
    const trace = readTrace(path());
    expect(trace.header).toEqual(HEADER);
    expect([...trace.layer]).toEqual([0, 1]);
    expect([...trace.rows]).toEqual([3, 3]);
    expect([...trace.ids]).toEqual([1, 5, 39, 0, 2]);
    expect(trace.isCut).toBe(false);
    expect(notes).toEqual([]);
  });

  test('is written between passes, when enough has come together or nothing runs', () => {
    const file = open();
    lease(file, 0, 1);
    file.flush(false);
    expect(leaseCount(readTrace(path()))).toBe(0);
    file.flush(true);
    expect(leaseCount(readTrace(path()))).toBe(1);
    for (let pass = 0; pass < 10_000; pass++) {
      lease(file, 0, 1, 2);
      file.flush(false);
    }
    const written = leaseCount(readTrace(path()));
    expect(written).toBeGreaterThan(5000);
    expect(written).toBeLessThan(10_001);
    file.close();
    expect(leaseCount(readTrace(path()))).toBe(10_001);
  });

  test('ends, and says so, when leases come faster than they are written', () => {
    const file = open();
    for (let i = 0; i < 100_000; i++) lease(file, 0, 1, 2);
    file.flush(true);
    lease(file, 0, 1, 2);
    file.close();
    expect(notes).toHaveLength(1);
    expect(leaseCount(readTrace(path()))).toBeLessThan(100_000);
    expect(readTrace(path()).isCut).toBe(false);
  });

  test('replaces an older trace and an empty file, but nothing else', () => {
    for (const content of ['', 'COLITRC1 and more']) {
      fs.writeFileSync(path(), content);
      open().close();
      expect(leaseCount(readTrace(path()))).toBe(0);
    }
    expect(notes).toEqual([`the trace in ${path()} is replaced by the one of this run`]);
    for (const content of ['weights', 'COLITRC2xxxx', '{"a": 1}']) {
      fs.writeFileSync(path(), content);
      expect(open).toThrow(expect.objectContaining({ code: 'TRACE_UNWRITABLE' }));
      expect(fs.readFileSync(path(), 'utf8')).toBe(content);
    }
  });

  test('cannot be a link, which may lead to the output of the program', () => {
    fs.writeFileSync(join(directory, 'output'), '');
    fs.symlinkSync(join(directory, 'output'), path());
    expect(open).toThrow(expect.objectContaining({ code: 'TRACE_UNWRITABLE' }));
    expect(fs.readFileSync(join(directory, 'output'), 'utf8')).toBe('');
  });

  test('cannot be a directory, nor lie in one that is not there', () => {
    fs.mkdirSync(path());
    expect(open).toThrow(expect.objectContaining({ code: 'TRACE_UNWRITABLE' }));
    const nowhere = () => new TraceFile(join(directory, 'no', 'a'), HEADER, () => {});
    expect(nowhere).toThrow(
      expect.objectContaining({ code: 'TRACE_UNWRITABLE', message: expect.stringContaining('there is no directory') }),
    );
  });

  test.skipIf(!fs.existsSync('/dev/full'))('a full disk ends the trace with a note', () => {
    fs.symlinkSync('/dev/full', path());
    // a device is no regular file, so the way there is a descriptor that is exchanged below an open trace
    fs.rmSync(path());
    const file = open();
    const full = fs.openSync('/dev/full', 'w');
    const { writeSync } = fs;
    fs.writeSync = ((_fd: number, ...rest: [Uint8Array]) => writeSync(full, ...rest)) as typeof fs.writeSync;
    try {
      lease(file, 0, 1);
      file.flush(true);
    } finally {
      fs.writeSync = writeSync;
      fs.closeSync(full);
    }
    lease(file, 0, 1);
    file.close();
    expect(notes).toEqual([expect.stringContaining('ENOSPC')]);
    expect(leaseCount(readTrace(path()))).toBe(0);
  });
});

describe('the last leases', () => {
  const MAX_BYTES = 1000;

  test('are all of a short past', () => {
    const recent = new RecentTrace(HEADER, MAX_BYTES);
    expect(recent.isNew).toBe(false);
    lease(recent, 0, 1, 2);
    lease(recent, 1, 7);
    expect(recent.isNew).toBe(true);
    expect([...recent.trace().ids]).toEqual([1, 2, 7]);
  });

  test('are at least half of what fits, and the newest, whatever came before', () => {
    const recent = new RecentTrace(HEADER, MAX_BYTES);
    for (let i = 0; i < 5000; i++) lease(recent, i % 2, i % 30, 30 + (i % 10));
    const trace = recent.trace();
    // five bytes each
    expect(leaseCount(trace)).toBeGreaterThan(MAX_BYTES / 2 / 5 - 10);
    expect(recent.bytes().length).toBeLessThan(MAX_BYTES + 400);
    expect([...trace.ids.slice(-2)]).toEqual([4999 % 30, 39]);
    const first = trace.ids[0];
    expect(first).toBe((5000 - leaseCount(trace)) % 30);
  });

  test('go on from those of an earlier engine', () => {
    const first = new RecentTrace(HEADER, MAX_BYTES);
    lease(first, 0, 3);
    const second = new RecentTrace(HEADER, MAX_BYTES, first.trace());
    expect(second.isNew).toBe(false);
    lease(second, 0, 4);
    expect([...second.trace().ids]).toEqual([3, 4]);
    expect([...second.trace().rows]).toEqual([3, 3]);
  });
});
