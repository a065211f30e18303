/** The run that the tests of failing reads disturb, and what must be true of every disturbed one. */

import { expect } from 'vitest';
import { type ColiError, StorageError } from '../../src/common/errors.ts';
import { writeTiny } from '../fixtures/tiny.ts';
import { type Bench, bytesOf, type Run, withBench } from './engine-support.ts';

export const PROMPT = bytesOf('Hi!');
export const REQUEST = { temperature: 0, maxTokens: 3, ignoreEos: true };
const CODE: Record<string, string> = { eio: 'READ_FAILED', short: 'SHORT_READ' };

/** One token at a time reads nothing ahead: so every read of this run is known, and needed. */
export const STEPWISE = { expertSlots: 2, chunk: 1, readers: 1 };

export interface CleanRun {
  readonly run: Run;
  readonly residentReads: number;
  readonly totalReads: number;
}

/** Writes a model of some layers and runs it undisturbed. */
export async function cleanRun(model: string, layers: number): Promise<CleanRun> {
  writeTiny(model, { shape: { layers }, shards: layers });
  return withBench({ model, ...STEPWISE }, {}, bench => {
    const run = bench.run(PROMPT, REQUEST);
    expect(run.end?.tokenIds).toHaveLength(3);
    const { records, dense, firstExpert } = bench.runtime.files.records;
    const experts = records.slice(firstExpert[0]);
    expect(experts.every(record => record.extents.length === 1)).toBe(true);
    const residentReads = [...dense.values()].flat().reduce((sum, record) => sum + records[record].extents.length, 0);
    return { run, residentReads, totalReads: residentReads + bench.runtime.store.counters.misses };
  });
}

export function expectReadError(error: ColiError | null, kind: string): void {
  expect(error).toBeInstanceOf(StorageError);
  expect(error?.code).toBe(CODE[kind]);
  const { file, offset, expected, got, record } = error!.details as Record<string, number>;
  expect(file).toMatch(/\/model(-0000[12]-of-00002)?\.safetensors$/);
  expect(record).toMatch(/^(model\.|lm_head|layer \d expert \d)/);
  expect(offset).toBeGreaterThan(0);
  expect(expected).toBeGreaterThan(0);
  expect(got).toBeGreaterThanOrEqual(0);
  expect(got).toBeLessThan(expected);
  expect(error!.message).toContain(String(offset));
  expect(error!.hint).toBeTruthy();
}

/** What came before the error is the beginning of the right answer, and the next request is answered as if nothing was. */
export function expectNoHarm(bench: Bench, run: Run, { run: clean }: CleanRun): void {
  expect(run.end).toBeNull();
  expect(run.events.some(event => event.type === 'end')).toBe(false);
  expect(run.tokenIds).toEqual(clean.tokenIds.slice(0, run.tokenIds.length));
  expect(clean.text.startsWith(run.text)).toBe(true);
  const next = bench.run(PROMPT, REQUEST);
  expect(next.error).toBeNull();
  expect(next.end).toMatchObject({ tokenIds: clean.end!.tokenIds, text: clean.end!.text, finishReason: 'length' });
}
