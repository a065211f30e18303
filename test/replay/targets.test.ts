/**
 * What the default policy finds in recorded routing, against the optimum and against least recently used. The texts are not among those
 * on which the policy's numbers were chosen. The traces were made with
 * `coli eval ppl --chunk 1 --window 256 --prefetch off --trace FILE`; nano-chunks with `--chunk 8`; qwen3-shape has the shape of
 * Qwen3-30B-A3B cut down to three layers, and random weights.
 */

import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { DEFAULT_POLICY, makePolicy } from '../../src/experts/policies/policies.ts';
import { belady } from '../../src/experts/replay/belady.ts';
import { replay } from '../../src/experts/replay/replay.ts';
import { expertCount, type Trace } from '../../src/experts/replay/trace.ts';
import { readTrace } from '../../src/experts/replay/trace-format.ts';

const DIRECTORY = join(import.meta.dirname, 'traces');
const SHARES = [0.25, 0.5, 0.75];
/** Where the optimum finds so much, a policy has something to win and something to lose. */
const RANGE = { least: 0.6, most: 0.95 };
/** The worst of the requests by which the default may be behind least recently used. */
const MAX_LOSS = 0.005;

interface Point {
  readonly name: string;
  readonly share: number;
  /** Hits per request. */
  readonly best: number;
  readonly lru: number;
  readonly chosen: number;
}

function points(name: string, trace: Trace): Point[] {
  return SHARES.map(share => {
    const slots = Math.round(share * expertCount(trace.header));
    const rate = (hits: number) => hits / trace.ids.length;
    const hitsOf = (policy: 'lru' | typeof DEFAULT_POLICY) => replay(trace, slots, makePolicy(policy)).hits;
    return {
      name,
      share,
      best: rate(belady(trace, slots).hits),
      lru: rate(hitsOf('lru')),
      chosen: rate(hitsOf(DEFAULT_POLICY)),
    };
  });
}

const all = readdirSync(DIRECTORY).flatMap(file => points(basename(file, '.trace'), readTrace(join(DIRECTORY, file))));
const inRange = all.filter(({ best }) => best >= RANGE.least && best <= RANGE.most);
const ratios = (list: readonly Point[]) => list.map(({ chosen, best }) => chosen / best);
const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

describe('the default policy on recorded routing', () => {
  test.each(all)('$name with $share of the experts: not behind least recently used', ({ chosen, lru }) => {
    expect(chosen).toBeGreaterThanOrEqual(lru - MAX_LOSS);
  });

  test.each(inRange.filter(({ share }) => share === 0.75))(
    '$name with $share of the experts: 85 % of what the optimum finds',
    ({ chosen, best }) => expect(chosen).toBeGreaterThanOrEqual(0.85 * best),
  );

  /** With fewer slots that would take knowing the next tokens' routing: these are what is reached, so that no change loses it. */
  test.each([
    [0.25, 0.72, 0.1],
    [0.5, 0.85, 0.05],
  ])(
    'with %d of the experts: %d of the optimum on the whole, and %d more than least recently used',
    (share, least, gain) => {
      const list = inRange.filter(point => point.share === share);
      expect(list.length).toBeGreaterThan(1);
      expect(mean(ratios(list))).toBeGreaterThanOrEqual(least);
      const lru = mean(list.map(point => point.lru / point.best));
      expect(mean(ratios(list)) - lru).toBeGreaterThanOrEqual(gain);
    },
  );
});
