/** Kernels compiled from `c/`. The addon is built on this machine (scripts/build-native.js) or comes as a package. */

import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { KernelError } from '../../common/errors.ts';
import type { CommandWords, RunCommand } from '../commands.ts';
import type { KernelFactory, Kernels, NativeName } from '../kernels.ts';

/** What the addon exports. */
export interface NativeAddon {
  /** Raised with every change of what JavaScript sees; an older build is not used. */
  readonly interface: number;
  /** Variants that this processor can run, fastest first, without the prefix "native-". */
  readonly variants: readonly string[];
  create(variant: string, arena: Uint8Array): Omit<Kernels, 'name'>;
  createRunner(variant: string, arena: Uint8Array, words: Uint8Array): RunCommand;
}

/** INTERFACE of c/addon.c. */
const INTERFACE = 5;
/** A package made by `npm run prebuild`, for machines without a compiler. */
const PREBUILT = `colibri-moe-native-${process.platform}-${process.arch}`;
const HERE = fileURLToPath(import.meta.url);
const REBUILD = HERE.includes(`${path.sep}node_modules${path.sep}`) ? 'npm rebuild colibri-moe' : 'npm run prepare';
const BUILD_HINT = `install a C compiler (gcc or clang), then ${REBUILD}`;

/** Where an addon may be. */
export interface NativePlaces {
  /** Folder of the local build: the addon, and what the build wrote when something went wrong. */
  readonly build: string;
  /** A file; packages are looked for as if it asked for them. */
  readonly importer: string;
  /** The manifest of the package that this file belongs to. */
  readonly manifest: string;
}

const PLACES: NativePlaces = {
  build: path.join(path.dirname(HERE), 'build'),
  importer: HERE,
  manifest: path.join(path.dirname(HERE), '../../../package.json'),
};

/**
 * The addon for this machine: the local build, else the prebuilt package. Throws KernelError KERNELS_NOT_BUILT when there is
 * neither, KERNEL_UNAVAILABLE when it cannot be loaded or belongs to another version.
 */
export function loadNative(places: NativePlaces = PLACES): NativeAddon {
  const require = createRequire(places.importer);
  const built = path.join(places.build, 'colibri.node');
  const from = existsSync(built) ? built : prebuilt(require, places);
  if (from === null) {
    const why = buildNote(places);
    const text = `native kernels are not built: ${why ?? 'the build has not run'}`;
    throw new KernelError('KERNELS_NOT_BUILT', text, { hint: why ? BUILD_HINT : REBUILD });
  }
  const hint = from === built ? `delete that file, then ${REBUILD}` : BUILD_HINT;
  let addon: NativeAddon;
  try {
    addon = require(from) as NativeAddon;
  } catch (cause) {
    const text = cause instanceof Error ? cause.message : String(cause);
    throw new KernelError('KERNEL_UNAVAILABLE', `${from} cannot be loaded: ${text}`, { hint, cause });
  }
  if (addon.interface !== INTERFACE) {
    throw new KernelError('KERNEL_UNAVAILABLE', `${from} was built from other sources`, { hint });
  }
  return addon;
}

/** Why the local build lacks some variants; null when it has all of them, or there is none. */
export function missingVariants(places: NativePlaces = PLACES): string | null {
  return existsSync(path.join(places.build, 'colibri.node')) ? buildNote(places) : null;
}

/** What the local build could not do. */
function buildNote({ build }: NativePlaces): string | null {
  try {
    return readFileSync(path.join(build, 'reason.txt'), 'utf8').trim();
  } catch {
    return null;
  }
}

/** Names of the variants that can run here, fastest first; empty when there is no addon. */
export function nativeVariants(): NativeName[] {
  try {
    return loadNative().variants.map(variant => `native-${variant}` as NativeName);
  } catch {
    return [];
  }
}

/** Runs commands whose arguments lie in `words` (all of a shared buffer), without a number crossing that would be boxed. */
export function createNativeRunner(
  addon: NativeAddon,
  name: NativeName,
  memory: WebAssembly.Memory,
  words: CommandWords,
): RunCommand {
  const bytes = (buffer: ArrayBufferLike) => new Uint8Array(buffer);
  return addon.createRunner(name.slice('native-'.length), bytes(memory.buffer), bytes(words.unsigned.buffer));
}

/** Kernels of one variant; the addon checks every address against the arena. */
export function createNativeKernels(addon: NativeAddon, name: NativeName): KernelFactory {
  const variant = name.slice('native-'.length);
  if (!addon.variants.includes(variant)) {
    const note = missingVariants();
    throw new KernelError(
      'KERNEL_UNAVAILABLE',
      `${name} is not for this processor${note ? `, or was not built: ${note}` : ''}`,
      { hint: `this machine can run ${addon.variants.map(one => `native-${one}`).join(', ')}` },
    );
  }
  return memory => ({ name, ...addon.create(variant, new Uint8Array(memory.buffer)) });
}

/** The addon of the prebuilt package, or null. Throws KERNEL_UNAVAILABLE for a package of another version. */
function prebuilt(require: NodeJS.Require, { manifest }: NativePlaces): string | null {
  let theirs: string;
  try {
    theirs = require.resolve(`${PREBUILT}/package.json`);
  } catch {
    return null;
  }
  const [version, wanted] = [theirs, manifest].map(file => JSON.parse(readFileSync(file, 'utf8')).version);
  if (version !== wanted) {
    throw new KernelError('KERNEL_UNAVAILABLE', `${PREBUILT} ${version} does not belong to colibri-moe ${wanted}`, {
      hint: `install ${PREBUILT} ${wanted}, or a C compiler (gcc or clang) and then ${REBUILD}`,
    });
  }
  return path.join(path.dirname(theirs), 'colibri.node');
}
