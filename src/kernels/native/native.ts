/** Kernels compiled from `c/`. The addon is built on this machine (scripts/build-native.js) or comes as a package. */

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { KernelError } from '../../common/errors.ts';
import type { KernelFactory, Kernels, NativeName } from '../kernels.ts';

/** What the addon exports. */
export interface NativeAddon {
  /** Raised with every change of what JavaScript sees; an older build is not used. */
  readonly interface: number;
  /** Variants that this processor can run, fastest first, without the prefix "native-". */
  readonly variants: readonly string[];
  create(variant: string, arena: Uint8Array): Omit<Kernels, 'name'>;
}

/** INTERFACE of c/addon.c. */
const INTERFACE = 1;
const BUILT = fileURLToPath(new URL('./build/colibri.node', import.meta.url));
const REASON = fileURLToPath(new URL('./build/reason.txt', import.meta.url));
/** A package made by `npm run prebuild`, for machines without a compiler. */
const PREBUILT = `colibri-moe-native-${process.platform}-${process.arch}`;
const BUILD_HINT = 'install a C compiler (gcc or clang), then npm run prepare (in a package: npm rebuild colibri-moe)';

/**
 * The addon for this machine: the local build, else the prebuilt package. Throws KernelError KERNELS_NOT_BUILT when there is
 * neither, KERNEL_UNAVAILABLE when it cannot be loaded or belongs to another version.
 */
export function loadNative(): NativeAddon {
  const require = createRequire(import.meta.url);
  const from = existsSync(BUILT) ? BUILT : resolvePackage(require);
  if (from === null) {
    throw new KernelError('KERNELS_NOT_BUILT', `native kernels are not built: ${whyNot()}`, { hint: BUILD_HINT });
  }
  let addon: NativeAddon;
  try {
    addon = require(from) as NativeAddon;
  } catch (cause) {
    const text = cause instanceof Error ? cause.message : String(cause);
    throw new KernelError('KERNEL_UNAVAILABLE', `${from} cannot be loaded: ${text}`, { hint: BUILD_HINT, cause });
  }
  if (addon.interface !== INTERFACE) {
    throw new KernelError('KERNEL_UNAVAILABLE', `${from} was built from other sources`, { hint: BUILD_HINT });
  }
  return addon;
}

/** Names of the variants that can run here, fastest first; empty when there is no addon. */
export function nativeVariants(): NativeName[] {
  try {
    return loadNative().variants.map(variant => `native-${variant}` as NativeName);
  } catch {
    return [];
  }
}

/** Kernels of one variant; the addon checks every address against the arena. */
export function createNativeKernels(addon: NativeAddon, name: NativeName): KernelFactory {
  const variant = name.slice('native-'.length);
  if (!addon.variants.includes(variant)) {
    throw new KernelError(
      'KERNEL_UNAVAILABLE',
      `${name} is not for this processor, or its compiler could not build it`,
      {
        hint: `this machine can run ${addon.variants.map(one => `native-${one}`).join(', ')}`,
      },
    );
  }
  return memory => ({ name, ...addon.create(variant, new Uint8Array(memory.buffer)) });
}

function resolvePackage(require: NodeJS.Require): string | null {
  try {
    return require.resolve(PREBUILT);
  } catch {
    return null;
  }
}

/** What the build wrote when it could not build. */
function whyNot(): string {
  try {
    return readFileSync(REASON, 'utf8').trim();
  } catch {
    return 'the build has not run';
  }
}
