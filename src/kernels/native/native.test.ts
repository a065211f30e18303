/** Finding the addon: a build of this machine, a prebuilt package, or a reason why there is none. */

import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { KernelError } from '../../common/errors.ts';
import { createNativeKernels, loadNative, missingVariants, type NativePlaces, nativeVariants } from './native.ts';

const BUILD = path.join(import.meta.dirname, 'build');
const isBuilt = existsSync(path.join(BUILD, 'colibri.node'));
const PREBUILT = `colibri-moe-native-${process.platform}-${process.arch}`;

let folder: string;
let places: NativePlaces;
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'addon-'));
  const manifest = path.join(folder, 'package.json');
  places = { build: path.join(folder, 'build'), importer: path.join(folder, 'native.js'), manifest };
  mkdirSync(places.build);
  writeFileSync(manifest, '{"version":"2.0.0"}');
});
afterEach(() => rmSync(folder, { recursive: true }));

function addPackage(version: string): string {
  const at = path.join(folder, 'node_modules', PREBUILT);
  mkdirSync(at, { recursive: true });
  writeFileSync(path.join(at, 'package.json'), JSON.stringify({ name: PREBUILT, version }));
  if (isBuilt) copyFileSync(path.join(BUILD, 'colibri.node'), path.join(at, 'colibri.node'));
  return path.join(at, 'colibri.node');
}

function failure(): KernelError {
  try {
    loadNative(places);
  } catch (error) {
    if (error instanceof KernelError) return error;
    throw error;
  }
  throw new Error('did not throw');
}

test('this checkout has native kernels, or a reason why not', () => {
  // Tests skip native kernels that are missing: that must not happen by accident.
  if (isBuilt) expect(nativeVariants()).toContain('native-scalar');
  else expect(readFileSync(path.join(BUILD, 'reason.txt'), 'utf8')).toMatch(/no C compiler|not for|not installed/);
});

describe('without an addon', () => {
  test('the build has not run', () => {
    expect(failure()).toMatchObject({
      code: 'KERNELS_NOT_BUILT',
      message: 'native kernels are not built: the build has not run',
      hint: 'npm run prepare',
    });
  });

  test('the build says why', () => {
    writeFileSync(path.join(places.build, 'reason.txt'), 'no C compiler (tried cc)\n');
    expect(failure().message).toBe('native kernels are not built: no C compiler (tried cc)');
    expect(missingVariants(places)).toBeNull();
  });
});

test('a file that is no addon is told with its name and what to do', () => {
  writeFileSync(path.join(places.build, 'colibri.node'), 'half of an addon');
  const error = failure();
  expect(error.code).toBe('KERNEL_UNAVAILABLE');
  expect(error.message).toContain(`${path.join(places.build, 'colibri.node')} cannot be loaded: `);
  expect(error.hint).toBe('delete that file, then npm run prepare');
});

test('a package of another version is refused, even if it could be loaded', () => {
  addPackage('1.9.9');
  expect(failure()).toMatchObject({
    code: 'KERNEL_UNAVAILABLE',
    message: `${PREBUILT} 1.9.9 does not belong to colibri-moe 2.0.0`,
    hint: expect.stringContaining(`install ${PREBUILT} 2.0.0`),
  });
});

test('an addon of another interface is refused', () => {
  // What require() gives for the file is what counts; an addon would need a compiler.
  const script = `
    import { createRequire } from 'node:module';
    import { loadNative } from ${JSON.stringify(new URL('./native.ts', import.meta.url).href)};
    createRequire(import.meta.url).extensions['.node'] = module => { module.exports = { interface: 0, variants: [] }; };
    try { loadNative(${JSON.stringify(places)}); } catch (error) { console.log(error.code + ': ' + error.message); }`;
  writeFileSync(path.join(places.build, 'colibri.node'), '');
  const args = ['--input-type=module', '--eval', script];
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  expect(stdout, stderr).toMatch(/^KERNEL_UNAVAILABLE: .*colibri\.node was built from other sources\n$/);
});

describe.skipIf(!isBuilt)('with an addon', () => {
  test('the package of this version serves when nothing was built here', () => {
    addPackage('2.0.0');
    // The reason of the local build is not one of this addon.
    writeFileSync(path.join(places.build, 'reason.txt'), 'no C compiler\n');
    expect(loadNative(places).variants).toEqual(loadNative().variants);
    expect(missingVariants(places)).toBeNull();
  });

  test('what was built here comes before a package', () => {
    writeFileSync(addPackage('1.0.0'), 'nonsense');
    copyFileSync(path.join(BUILD, 'colibri.node'), path.join(places.build, 'colibri.node'));
    expect(loadNative(places).variants).toContain('scalar');
  });

  test('what a compiler could not build is told', () => {
    copyFileSync(path.join(BUILD, 'colibri.node'), path.join(places.build, 'colibri.node'));
    writeFileSync(path.join(places.build, 'reason.txt'), 'the compiler could not build avx2 (cc ended)\n');
    expect(missingVariants(places)).toBe('the compiler could not build avx2 (cc ended)');
  });

  test('a variant that the addon lacks is refused with those that it has', () => {
    const addon = { ...loadNative(), variants: ['scalar'] };
    expect(() => createNativeKernels(addon, 'native-avx2')).toThrow(
      expect.objectContaining({ code: 'KERNEL_UNAVAILABLE', hint: 'this machine can run native-scalar' }),
    );
  });
});
