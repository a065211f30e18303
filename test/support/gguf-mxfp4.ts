/** The experts of a gpt-oss checkpoint in MXFP4, repacked as converters to GGUF do it. */

import { openCheckpoint } from '../../src/formats/checkpoint.ts';
import { bytesOfTensor } from './checkpoint-bytes.ts';
import { typeId } from './gguf-blocks.ts';
import type { GgufEntry } from './gguf-writer.ts';

const CODES = 16;
const BLOCK = 1 + CODES;

/** gate, up and down of every layer; gate and up rows alternate in the checkpoint. */
export function mxfp4Experts(directory: string): GgufEntry[] {
  const checkpoint = openCheckpoint(directory);
  return [...checkpoint.tensors.values()].flatMap(tensor => {
    const match = /^model\.layers\.(\d+)\.mlp\.experts\.(gate_up|down)_proj_blocks$/.exec(tensor.name);
    if (!match) return [];
    const scales = checkpoint.tensors.get(tensor.name.replace('_blocks', '_scales'))!;
    const rows = repack(bytesOfTensor(checkpoint, tensor), bytesOfTensor(checkpoint, scales));
    const [experts, height, groups] = tensor.shape;
    const roles = match[2] === 'down' ? ['down'] : ['gate', 'up'];
    return roles.map((role, first): GgufEntry => {
      const rowBytes = groups * BLOCK;
      const own = Array.from({ length: experts * height }, (_, row) => row).filter(row => row % roles.length === first);
      const bytes = Buffer.concat(own.map(row => rows.subarray(row * rowBytes, (row + 1) * rowBytes)));
      const dims = [groups * 32, height / roles.length, experts];
      return { name: `blk.${match[1]}.ffn_${role}_exps.weight`, dims, type: typeId('MXFP4'), bytes };
    });
  });
}

/** Scale before its codes; neighbours in a byte become elements j and j + 16 of the group. */
function repack(codes: Uint8Array, scales: Uint8Array): Uint8Array {
  const result = new Uint8Array(scales.length * BLOCK);
  for (let group = 0; group < scales.length; group++) {
    const nibble = (i: number) => (codes[group * CODES + (i >> 1)] >> (4 * (i & 1))) & 15;
    result[group * BLOCK] = scales[group];
    for (let j = 0; j < CODES; j++) result[group * BLOCK + 1 + j] = nibble(j) | (nibble(j + 16) << 4);
  }
  return result;
}
