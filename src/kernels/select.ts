/** Chooses an implementation that runs here and agrees with the reference. */

import { KernelError } from '../common/errors.ts';
import { type CommandWords, commandRunner, type RunCommand } from './commands.ts';
import type { KernelChoice, KernelFactory, KernelName, Kernels, NativeName } from './kernels.ts';
import {
  createNativeKernels,
  createNativeRunner,
  loadNative,
  missingVariants,
  type NativeAddon,
} from './native/native.ts';
import { createReferenceKernels } from './reference/reference.ts';
import { SELF_TEST_PAGES, selfTest } from './self-test.ts';
import { compileWasm, createWasmKernels, type WasmVariant } from './wasm/wasm.ts';

/** `name` and `module` are what another thread needs: `kernelsFor(name, module)` gives it the same kernels. */
export interface SelectedKernels {
  readonly name: KernelName;
  readonly factory: KernelFactory;
  readonly module: WebAssembly.Module | null;
  /** Why faster implementations were passed over, or null. */
  readonly note: string | null;
  /** The part of the note that is worth a word at every start: not that native kernels were never built, or not all. */
  readonly warning: string | null;
}

/** Where implementations come from; tests hand in failing sources. */
export interface KernelSources {
  readonly compile: (variant: WasmVariant) => WebAssembly.Module;
  readonly loadNative: () => NativeAddon;
}

const SOURCES: KernelSources = { compile: compileWasm, loadNative };
const WASM: readonly KernelName[] = ['wasm-relaxed', 'wasm-baseline'];
/** Self-tested in this process: whoever opens another model runs the same code. */
const passed = new Set<KernelName>();

/**
 * The first implementation of the choice that loads and passes its self-test; `note` says what was passed over and
 * why. Throws KernelError KERNEL_UNAVAILABLE when none is left.
 */
export function selectKernels(choice: KernelChoice, sources: KernelSources = SOURCES): SelectedKernels {
  const reasons: PassedOver[] = [];
  let notBuilt: PassedOver | null = null;
  let candidates: readonly KernelName[] = [];
  try {
    candidates = candidatesOf(choice, sources);
  } catch (error) {
    if (error instanceof KernelError && error.code === 'KERNELS_NOT_BUILT') notBuilt = { name: 'native', error };
    else reasons.push({ name: 'native', error });
    if (choice === 'auto') candidates = [...WASM, 'reference'];
  }
  for (const name of candidates) {
    try {
      const module = isWasm(name) ? sources.compile(variantOf(name)) : null;
      const factory = kernelsFor(name, module, sources.loadNative);
      if (name !== 'reference' && !(sources === SOURCES && passed.has(name))) check(factory);
      if (sources === SOURCES) passed.add(name);
      const told = (all: string[]) => (all.length ? `using ${name}: ${all.join('; ')}` : null);
      const warnings = reasons.map(one => explain(one));
      const quiet = name !== choice && isNative(name) ? missingVariants() : notBuilt && explain(notBuilt);
      return { name, factory, module, note: told(quiet ? [quiet, ...warnings] : warnings), warning: told(warnings) };
    } catch (error) {
      reasons.push({ name, error });
    }
  }
  const all = notBuilt ? [notBuilt, ...reasons] : reasons;
  const cause = all.at(-1)?.error;
  const hint = hintOf(cause) ?? 'choose other kernels: auto takes the fastest that works here';
  throw new KernelError('KERNEL_UNAVAILABLE', all.map(one => explain(one, hint)).join('; '), {
    hint,
    details: { choice },
    cause,
  });
}

interface PassedOver {
  readonly name: string;
  readonly error: unknown;
}

function hintOf(error: unknown): string | undefined {
  return error instanceof KernelError ? error.hint : undefined;
}

/** What happened and what helps, unless that is `told` anyway. */
function explain({ name, error }: PassedOver, told?: string): string {
  const text = error instanceof Error ? error.message : String(error);
  const hint = hintOf(error);
  return `${name} cannot be used (${text}${hint && hint !== told ? `; ${hint}` : ''})`;
}

/** The factory of an implementation by name; `module` is the compiled variant (null for all but WebAssembly). */
export function kernelsFor(name: KernelName, module: WebAssembly.Module | null, load = loadNative): KernelFactory {
  if (name === 'reference') return createReferenceKernels;
  if (isNative(name)) return createNativeKernels(load(), name);
  if (!module) throw new KernelError('KERNEL_UNAVAILABLE', `${name} needs its compiled module`);
  return createWasmKernels(module, variantOf(name));
}

/** What runs commands for kernels bound to a memory. */
export function runnerFor(kernels: Kernels, memory: WebAssembly.Memory, words: CommandWords): RunCommand {
  if (!kernels.name.startsWith('native-')) return commandRunner(kernels, words);
  return createNativeRunner(loadNative(), kernels.name as NativeName, memory, words);
}

/** Throws what loading the addon throws, when the choice needs it. Plain C is slower than WebAssembly: only when asked for. */
function candidatesOf(choice: KernelChoice, { loadNative }: KernelSources): readonly KernelName[] {
  if (choice === 'wasm') return WASM;
  if (choice !== 'auto' && choice !== 'native') return [choice];
  const native = loadNative().variants.map(variant => `native-${variant}` as NativeName);
  if (choice === 'native') return native;
  return [...native.filter(name => name !== 'native-scalar'), ...WASM, 'reference'];
}

function isWasm(name: KernelName): boolean {
  return WASM.includes(name);
}

function isNative(name: KernelName): name is NativeName {
  return name.startsWith('native-');
}

function variantOf(name: KernelName): WasmVariant {
  return name === 'wasm-relaxed' ? 'relaxed' : 'baseline';
}

function check(factory: KernelFactory): void {
  const memory = new WebAssembly.Memory({ initial: SELF_TEST_PAGES, maximum: SELF_TEST_PAGES, shared: true });
  const difference = selfTest(factory(memory), memory);
  if (difference) throw new KernelError('KERNEL_SELF_TEST', `self-test failed: ${difference}`);
}
