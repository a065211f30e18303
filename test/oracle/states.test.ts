/** Recurrent states after all tokens of a pack, against those of the independent implementation. */

import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { score } from '../../src/engine/score.ts';
import { maxDifference } from '../../src/eval/oracle.ts';
import { readReference } from '../../src/eval/reference.ts';
import { readExact, withFile } from '../../src/formats/files.ts';
import { readSafetensorsHeader } from '../../src/formats/safetensors.ts';
import type { FixedState } from '../../src/layers/state.ts';
import { packDirectory, withRuntime } from '../support/packs.ts';

const LAYERS = 4;

/** The tensors of a pack's reference whose names begin with `state.`. */
function readStates(model: string): Map<string, { shape: readonly number[]; values: Float32Array }> {
  const path = join(model, 'reference.safetensors');
  const tensors = readSafetensorsHeader(path).tensors.filter(({ name }) => name.startsWith('state.'));
  return new Map(
    tensors.map(({ name, shape, offset, bytes }) => {
      const buffer = new Uint8Array(bytes);
      withFile(path, fd => readExact(fd, buffer, offset, path));
      return [name, { shape, values: new Float32Array(buffer.buffer) }];
    }),
  );
}

describe.each(['qwen36', 'qwen36-fp8', 'qwen36-int4g64'])('%s', pack => {
  const model = packDirectory(pack);
  const { inputIds, tolerance } = readReference(model, LAYERS);
  const wanted = readStates(model);

  test.each([1, 7, 128])('matrices and inputs of the convolution, in passes of %i', chunk =>
    withRuntime({ model, context: 128, activations: 'exact', kernels: 'reference', chunk }, (runtime, session) => {
      score(runtime, session, { ids: inputIds });
      const { files, batch, compute } = runtime;
      const states = files.family.states(files.config, files.parts);
      const floats = (state: number) => {
        const { floats: length } = states[state] as FixedState;
        return new Float32Array(compute.arenas.memories[0].buffer, batch.cache.fixedAddress(state, 0), length).slice();
      };
      let compared = 0;
      for (let layer = 0, state = 0; layer < LAYERS; layer++) {
        if (states[state].kind === 'rows') {
          state++;
          continue;
        }
        const matrix = wanted.get(`state.${layer}.recurrent`)!;
        expect(maxDifference(floats(state), matrix.values)).toBeLessThanOrEqual(tolerance);
        // the reference keeps 4 inputs of each channel, of which the first is not used any more
        const conv = wanted.get(`state.${layer}.conv`)!;
        const [channels, taps] = conv.shape;
        const tail = Float32Array.from(
          { length: (taps - 1) * channels },
          (_, i) => conv.values[(i % channels) * taps + 1 + Math.floor(i / channels)],
        );
        expect(maxDifference(floats(state + 1), tail)).toBeLessThanOrEqual(tolerance);
        expect(matrix.values.some(value => Math.abs(value) > 100 * tolerance)).toBe(true);
        state += 2;
        compared += 2;
      }
      expect(compared).toBe(wanted.size);
    }),
  );
});
