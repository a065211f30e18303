import fc from 'fast-check';
import { expect, test } from 'vitest';
import { exp64, pow64, sinCos64 } from './trig.ts';

/** Both sides are good to about 1e-15; float32 rounding needs 1e-8. */
const TOLERANCE = 1e-14;

test('sine and cosine agree with the platform over rope angles', () => {
  fc.assert(
    fc.property(fc.double({ min: -1e6, max: 1e6, noNaN: true }), x => {
      const [sin, cos] = sinCos64(x);
      expect(Math.abs(sin - Math.sin(x))).toBeLessThan(TOLERANCE);
      expect(Math.abs(cos - Math.cos(x))).toBeLessThan(TOLERANCE);
    }),
  );
});

test('exp and pow agree with the platform', () => {
  fc.assert(
    fc.property(fc.double({ min: -50, max: 50, noNaN: true }), fc.double({ min: 0, max: 1, noNaN: true }), (x, e) => {
      expect(Math.abs(exp64(x) / Math.exp(x) - 1)).toBeLessThan(TOLERANCE);
      expect(Math.abs(pow64(10000, e) / 10000 ** e - 1)).toBeLessThan(TOLERANCE);
    }),
  );
});
