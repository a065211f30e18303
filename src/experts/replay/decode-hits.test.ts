import { describe, expect, test } from 'vitest';
import { decodeHits } from './decode-hits.ts';
import { headerOf, traceOf } from './test-support.ts';
import { type Trace, TraceBuilder } from './trace.ts';

/** One layer whose tokens ask for expert 0, 1, ... in a circle. */
function circle(passes: number, experts: number): Trace {
  return traceOf(
    1,
    64,
    Array.from({ length: passes }, (_, pass) => [0, [pass % experts]]),
  );
}

describe('hits of decoding', () => {
  test('all, where everything fits; the first reads are not counted', () => {
    expect(decodeHits(circle(1024, 4), 4, 'lru', 10_000)).toEqual({ likely: 1, low: 1, high: 1, passes: 512 });
  });

  test('none, where each comes back just too late', () => {
    expect(decodeHits(circle(1024, 5), 4, 'lru', 10_000)).toEqual({ likely: 0, low: 0, high: 0, passes: 512 });
  });

  test('stretches that differ give a range around what all of it gives', () => {
    const leases = Array.from({ length: 2048 }, (_, pass) => [0, [pass < 1536 ? pass % 4 : pass % 8]] as const);
    const { low, likely, high, passes } = decodeHits(traceOf(1, 64, leases), 4, 'lru', 10_000)!;
    expect({ low, high, passes }).toEqual({ low: 0, high: 1, passes: 1024 });
    expect(likely).toBeCloseTo(0.5, 2);
  });

  test('prompts take their slots and do not count', () => {
    const builder = new TraceBuilder(headerOf(1, 64));
    for (let pass = 0; pass < 1200; pass++) {
      if (pass % 2 === 0) builder.add(0, 1, [0]);
      else builder.add(0, 8, [10, 11, 12, 13]);
    }
    // a prompt between two tokens has put out what both want
    expect(decodeHits(builder.build(), 4, 'lru', 10_000)).toMatchObject({ likely: 0, passes: 300 });
    expect(decodeHits(builder.build(), 5, 'lru', 10_000)).toMatchObject({ likely: 1, passes: 300 });
  });

  test('a short trace, and a clock that runs out, say nothing', () => {
    expect(decodeHits(circle(511, 4), 4, 'lru', 10_000)).not.toBeNull();
    expect(decodeHits(circle(510, 4), 4, 'lru', 10_000)).toBeNull();
    let time = 0;
    expect(decodeHits(circle(4096, 4), 4, 'lru', 2, () => time++)).toBeNull();
  });
});
