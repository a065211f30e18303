import { ModelFileError } from '../../src/common/errors.ts';
import type {
  Checkpoint,
  ContainerIndex,
  Dtype,
  SafetensorsDtype,
  TensorInfo,
} from '../../src/formats/checkpoint-types.ts';
import { DTYPE_BITS } from '../../src/formats/safetensors.ts';
import { GGUF_LAYOUT } from '../../src/quant/encodings/gguf.ts';
import { BLOCKS } from '../../src/quant/layouts.ts';

function bitsOf(dtype: Dtype): number {
  const layout = GGUF_LAYOUT[dtype];
  return layout ? (BLOCKS[layout].bytes * 8) / BLOCKS[layout].columns : DTYPE_BITS[dtype as SafetensorsDtype];
}

/** A checkpoint that exists in memory only: tensors one after the other in one file. */
export function fake(
  entries: Record<string, [Dtype, number[]]>,
  container: Partial<ContainerIndex> | null = null,
  config: Record<string, unknown> = {},
): Checkpoint {
  const tensors = new Map<string, TensorInfo>();
  let offset = 128;
  for (const [name, [dtype, shape]] of Object.entries(entries)) {
    const bytes = shape.reduce((size, n) => size * n, bitsOf(dtype) / 8);
    tensors.set(name, { name, file: 0, dtype, shape, offset, bytes });
    offset += bytes;
  }
  const empty = { version: 1, writer: 'test', matrices: new Map(), experts: new Map(), sha256: new Map() };
  return {
    directory: '/m',
    config,
    generationConfig: null,
    files: [{ path: '/m/a.safetensors', bytes: offset, mtimeMs: 0, inode: 1 }],
    tensors,
    container: container && { ...empty, ...container },
    ignoredFiles: [],
    bytesOnDisk: offset,
  };
}

/** The ModelFileError that `resolve` throws. */
export function refusal(resolve: () => unknown): ModelFileError {
  try {
    resolve();
  } catch (error) {
    if (error instanceof ModelFileError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}
