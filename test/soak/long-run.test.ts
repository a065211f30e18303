/** Two thousand tokens with slots for a quarter of the experts: what the process holds stays what it was. */

import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MIB } from '../../src/common/units.ts';
import type { LongRun, LongRunReport } from '../support/long-run.ts';
import { runWatched } from '../support/memory.ts';

const NANO = resolve('models/nano');
const TOKENS = 2000;
const LAYERS = 6;
const EXPERTS = 32;
/** The kernel counts pages that are touched later, such as those of code that runs for the first time. */
const GROWTH_BYTES = 4 * MIB;

let folder: string;
let model: string;

/** The bundled model with a context that is long enough, behind a link, at a path that is not plain. */
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'coli long rün '));
  const real = join(folder, 'real');
  mkdirSync(real);
  cpSync(NANO, real, { recursive: true });
  const config = JSON.parse(readFileSync(join(real, 'config.json'), 'utf8'));
  writeFileSync(join(real, 'config.json'), JSON.stringify({ ...config, max_position_embeddings: 4096 }));
  model = join(folder, 'linked');
  symlinkSync(real, model);
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function generate(io: 'direct' | 'buffered'): Promise<LongRunReport> {
  const file = join(folder, `${io}.json`);
  const options = { model, io, context: 2100, threads: 2, expertSlots: (LAYERS * EXPERTS) / 4, ram: 512 * MIB };
  writeFileSync(file, JSON.stringify({ options, tokens: TOKENS, every: 250 } satisfies LongRun));
  const { status, stdout, stderr } = await runWatched(['test/support/long-run.ts', file], {
    NODE_COMPILE_CACHE: join(folder, 'cache'),
  });
  expect(status, stderr).toBe(0);
  return JSON.parse(stdout);
}

test('memory, handles and threads are the same after 500 and after 2000 tokens, read directly or through the page cache', async () => {
  const reports = [await generate('direct'), await generate('buffered')];
  for (const { samples, maxRssBytes, planBytes, kvBytesPerToken, hits, requests } of reports) {
    expect(samples.map(sample => sample.tokens)).toEqual([250, 500, 750, 1000, 1250, 1500, 1750, 2000]);
    const early = samples[1];
    for (const { tokens, rssBytes, handles, threads } of samples.slice(2)) {
      // the arena of keys and values is planned whole, and counted by the kernel as it fills
      const filledBytes = (tokens - early.tokens) * kvBytesPerToken;
      expect(rssBytes - early.rssBytes - filledBytes).toBeLessThan(GROWTH_BYTES);
      expect(handles).toBe(early.handles);
      expect(threads).toBe(early.threads);
    }
    expect(maxRssBytes).toBeLessThanOrEqual(planBytes);
    // the slots really are too few, and really are used
    expect(hits).toBeLessThan(requests);
    expect(hits).toBeGreaterThan(0);
  }
  expect(reports.map(report => report.directIo)).toEqual([true, false]);
  expect(reports[0].digest).toBe(reports[1].digest);
});
