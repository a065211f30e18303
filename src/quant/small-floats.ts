/** Floats of 4 and 8 bits: what their codes mean. */

const f = Math.fround;

/** Value of every float8 e4m3 code (OCP "fn": no infinities, 0x7f and 0xff are NaN, exponent 0 is m * 2^-9). */
export const E4M3: Float32Array = Float32Array.from({ length: 256 }, (_, code) => {
  const exponent = (code >> 3) & 15;
  const fraction = code & 7;
  if ((code & 0x7f) === 0x7f) return Number.NaN;
  const size = exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10);
  return code & 0x80 ? -size : size;
});

/** Value of every float4 e2m1 code. */
export const E2M1: Float32Array = Float32Array.of(0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6);

/** Value of an E8M0 scale: 2^(code - 127), which is a denormal for 0; 255 is NaN. */
export function e8m0Value(code: number): number {
  return code === 255 ? Number.NaN : f(2 ** (code - 127));
}
