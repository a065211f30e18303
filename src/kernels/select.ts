/** Chooses an implementation that runs here and agrees with the reference. */

import { KernelError } from '../common/errors.ts';
import type { KernelChoice, KernelFactory, KernelName } from './kernels.ts';
import { createReferenceKernels } from './reference/reference.ts';
import { SELF_TEST_PAGES, selfTest } from './self-test.ts';
import { compileWasm, createWasmKernels, type WasmVariant } from './wasm/wasm.ts';

/** `name` and `module` are what another thread needs: `kernelsFor(name, module)` gives it the same kernels. */
export interface SelectedKernels {
  readonly name: KernelName;
  readonly factory: KernelFactory;
  readonly module: WebAssembly.Module | null;
  /** Why a faster implementation was passed over, or null. */
  readonly note: string | null;
}

type WasmName = Exclude<KernelName, 'reference'>;
/** Reads and compiles a variant; tests hand in failing ones. */
export type CompileVariant = (variant: WasmVariant) => WebAssembly.Module;

const CANDIDATES: Readonly<Record<KernelChoice, readonly KernelName[]>> = {
  auto: ['wasm-relaxed', 'wasm-baseline', 'reference'],
  wasm: ['wasm-relaxed', 'wasm-baseline'],
  'wasm-relaxed': ['wasm-relaxed'],
  'wasm-baseline': ['wasm-baseline'],
  reference: ['reference'],
};

/**
 * The first implementation of the choice that compiles and passes its self-test; `note` says what was passed over and
 * why. Throws KernelError KERNEL_UNAVAILABLE when none is left.
 */
export function selectKernels(choice: KernelChoice, compile: CompileVariant = compileWasm): SelectedKernels {
  const reasons: string[] = [];
  let cause: unknown;
  for (const name of CANDIDATES[choice]) {
    try {
      const module = name === 'reference' ? null : compile(variantOf(name));
      const factory = kernelsFor(name, module);
      if (module) check(factory);
      return { name, factory, module, note: reasons.length ? `using ${name}: ${reasons.join('; ')}` : null };
    } catch (error) {
      cause = error;
      const text = error instanceof Error ? error.message : String(error);
      const fix = error instanceof KernelError && error.hint ? `; ${error.hint}` : '';
      reasons.push(`${name} cannot be used (${text}${fix})`);
    }
  }
  const hint = cause instanceof KernelError ? cause.hint : undefined;
  throw new KernelError('KERNEL_UNAVAILABLE', reasons.join('; '), {
    hint: hint ?? 'choose other kernels: auto takes the fastest that works here',
    details: { choice },
    cause,
  });
}

/** The factory of an implementation by name; `module` is the compiled variant (null for the reference). */
export function kernelsFor(name: KernelName, module: WebAssembly.Module | null): KernelFactory {
  if (name === 'reference') return createReferenceKernels;
  if (!module) throw new KernelError('KERNEL_UNAVAILABLE', `${name} needs its compiled module`);
  return createWasmKernels(module, variantOf(name));
}

function variantOf(name: WasmName): WasmVariant {
  return name === 'wasm-relaxed' ? 'relaxed' : 'baseline';
}

function check(factory: KernelFactory): void {
  const memory = new WebAssembly.Memory({ initial: SELF_TEST_PAGES, maximum: SELF_TEST_PAGES, shared: true });
  const difference = selfTest(factory(memory), memory);
  if (difference) throw new KernelError('KERNEL_SELF_TEST', `self-test failed: ${difference}`);
}
