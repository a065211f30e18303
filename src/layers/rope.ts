/** Rotary position tables. */

import type { Arenas, Tensor } from '../compute/arenas.ts';
import { pow64, sinCos64 } from '../kernels/trig.ts';

/** Inverse frequencies as transformers makes them: float32 of 1 / theta^(2i/dim), the exponent rounded to float32 first. */
export function inverseFrequencies(theta: number, rotaryDim: number): Float32Array {
  const result = new Float32Array(rotaryDim / 2);
  for (let i = 0; i < result.length; i++) {
    const exponent = Math.fround((2 * i) / rotaryDim);
    result[i] = Math.fround(1 / Math.fround(pow64(theta, exponent)));
  }
  return result;
}

/**
 * Table [context, rotaryDim]: per position rotaryDim/2 cosines, then the sines. Angles are float32 products (float64 angles
 * drift from every reference at long positions); sine and cosine are rounded to float32 once.
 */
export function ropeTable(arenas: Arenas, theta: number, rotaryDim: number, context: number): Tensor {
  const table = arenas.tensor(context, rotaryDim);
  arenas.onCommit(() => {
    const values = arenas.floats(table);
    const frequencies = inverseFrequencies(theta, rotaryDim);
    const half = rotaryDim / 2;
    for (let position = 0; position < context; position++) {
      for (let i = 0; i < half; i++) {
        const [sin, cos] = sinCos64(Math.fround(position * frequencies[i]));
        values[position * rotaryDim + i] = cos;
        values[position * rotaryDim + half + i] = sin;
      }
    }
  });
  return table;
}
