/** Kernels compiled from `assembly/` (AssemblyScript). `npm run prepare` writes the modules that are read here. */

import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { KernelError } from '../../common/errors.ts';
import type { KernelFactory, Kernels } from '../kernels.ts';

export type WasmVariant = 'baseline' | 'relaxed';

/**
 * Compiles a variant. Throws KernelError KERNELS_NOT_BUILT when its file is missing, WebAssembly.CompileError when this
 * engine lacks an instruction (relaxed SIMD).
 */
export function compileWasm(variant: WasmVariant): WebAssembly.Module {
  const file = fileURLToPath(new URL(`./build/${variant}.wasm`, import.meta.url));
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(file);
  } catch (cause) {
    throw new KernelError('KERNELS_NOT_BUILT', `${file} cannot be read`, {
      hint: 'npm run prepare',
      details: { file },
      cause,
    });
  }
  return new WebAssembly.Module(bytes);
}

/** The methods of the result are the module's exported functions themselves: no wrapper stands between. */
export function createWasmKernels(module: WebAssembly.Module, variant: WasmVariant): KernelFactory {
  return memory => {
    const { exports } = new WebAssembly.Instance(module, { env: { memory } });
    return { name: `wasm-${variant}`, ...exports } as unknown as Kernels;
  };
}
