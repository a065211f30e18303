import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { describe, expect, test } from 'vitest';
import { KernelError } from '../common/errors.ts';
import type { KernelChoice, KernelName, Kernels } from './kernels.ts';
import { loadNative, missingVariants, type NativeAddon, nativeVariants } from './native/native.ts';
import { type KernelSources, kernelsFor, selectKernels } from './select.ts';
import { SELF_TEST_PAGES, selfTest, selfTestScenes } from './self-test.ts';
import { IMPLEMENTATIONS, MISSING, SCENES } from './test-support.ts';
import { compileWasm, type WasmVariant } from './wasm/wasm.ts';

const hasRelaxed = !MISSING.some(one => one.name === 'wasm-relaxed');
const native = nativeVariants();
const notBuilt = () => {
  throw new KernelError('KERNELS_NOT_BUILT', 'native kernels are not built: no C compiler', { hint: 'install one' });
};
/** A machine with no native kernels. */
const WASM_ONLY: KernelSources = { compile: compileWasm, loadNative: notBuilt };

/** An engine that lacks relaxed SIMD, or everything. */
const failing = (...variants: WasmVariant[]): KernelSources => ({
  ...WASM_ONLY,
  compile: variant => {
    if (variants.includes(variant)) throw new WebAssembly.CompileError(`no ${variant} here`);
    return compileWasm(variant);
  },
});

/** An engine that miscomputes one instruction: every f32x4.div of the module becomes f32x4.mul. */
const wrong: KernelSources = {
  ...WASM_ONLY,
  compile: variant => {
    const bytes = readFileSync(new URL(`./wasm/build/${variant}.wasm`, import.meta.url));
    const [div, mul] = [Buffer.from([0xfd, 0xe7, 0x01]), Buffer.from([0xfd, 0xe6, 0x01])];
    for (let at = bytes.indexOf(div); at >= 0; at = bytes.indexOf(div, at)) mul.copy(bytes, at);
    return new WebAssembly.Module(bytes);
  },
};

/** An addon of which every variant doubles instead of clamping. */
const wrongNative: KernelSources = {
  compile: compileWasm,
  loadNative: () => {
    const addon = loadNative();
    const create: NativeAddon['create'] = (variant, arena) => {
      const inner = addon.create(variant, arena);
      return { ...inner, clamp: (x, _limit, from, to) => inner.add(x, x, from, to) };
    };
    return { ...addon, create };
  },
};

function failure(choice: KernelChoice, sources: KernelSources): KernelError {
  try {
    selectKernels(choice, sources);
  } catch (error) {
    if (error instanceof KernelError) return error;
  }
  throw new Error('did not throw a KernelError');
}

test.skipIf(native.length === 0)('auto takes the first native variant without a word', () => {
  const selected = selectKernels('auto');
  const missing = missingVariants();
  const note = missing && `using ${native[0]}: ${missing}`;
  expect(selected).toMatchObject({ name: native[0], module: null, note, warning: null });
  expect(selectKernels('native').name).toBe(native[0]);
});

test.skipIf(!hasRelaxed)('without an addon auto takes the relaxed kernels; the note, but no warning, says why', () => {
  const selected = selectKernels('auto', WASM_ONLY);
  expect(selected).toMatchObject({ name: 'wasm-relaxed', warning: null });
  expect(selected.note).toBe(
    'using wasm-relaxed: native cannot be used (native kernels are not built: no C compiler; install one)',
  );
  expect(selected.module).toBeInstanceOf(WebAssembly.Module);
  expect(selectKernels('wasm')).toMatchObject({ name: 'wasm-relaxed', note: null });
});

test('an explicit choice is what runs', () => {
  const choices: KernelName[] = ['reference', ...IMPLEMENTATIONS.map(one => one.name)];
  for (const name of choices) {
    const selected = selectKernels(name);
    expect(selected).toMatchObject({ name, note: null });
    expect(selected.factory(newMemory()).name).toBe(name);
  }
});

describe('fallback', () => {
  test('auto goes on to the baseline and says why', () => {
    const selected = selectKernels('auto', failing('relaxed'));
    expect(selected.name).toBe('wasm-baseline');
    expect(selected.warning).toBe('using wasm-baseline: wasm-relaxed cannot be used (no relaxed here)');
    expect(selected.note).toContain('no C compiler');
  });

  test('auto ends with the reference and names both reasons', () => {
    const selected = selectKernels('auto', failing('relaxed', 'baseline'));
    expect(selected).toMatchObject({ name: 'reference', module: null });
    expect(selected.warning).toContain('no relaxed here');
    expect(selected.warning).toContain('no baseline here');
  });

  test('kernels that miscompute are not used', () => {
    const selected = selectKernels('auto', wrong);
    expect(selected.name).toBe('reference');
    expect(selected.warning).toContain('self-test failed: quantise');
  });

  test.skipIf(native.length === 0)('native kernels that miscompute are not used, and that is a warning', () => {
    const selected = selectKernels('auto', wrongNative);
    expect(selected.name).toMatch(/^wasm-/);
    expect(selected.warning).toContain(`${native[0]} cannot be used (self-test failed: clamp`);
    expect(failure('native', wrongNative).code).toBe('KERNEL_UNAVAILABLE');
  });

  test('an addon that cannot be loaded is a warning for auto and an error for native', () => {
    const broken: KernelSources = {
      compile: compileWasm,
      loadNative: () => {
        throw new KernelError('KERNEL_UNAVAILABLE', 'colibri.node cannot be loaded: wrong ELF class');
      },
    };
    expect(selectKernels('auto', broken).warning).toContain('native cannot be used (colibri.node cannot be loaded');
    expect(failure('native', broken).message).toContain('wrong ELF class');
    expect(failure('native-avx2', broken).message).toContain('wrong ELF class');
  });

  test('kernels that miscompute are an error when they were asked for', () => {
    expect(failure('wasm-relaxed', wrong)).toMatchObject({
      code: 'KERNEL_UNAVAILABLE',
      details: { choice: 'wasm-relaxed' },
    });
  });

  test('wasm never becomes the reference, native never becomes wasm', () => {
    const error = failure('wasm', failing('relaxed', 'baseline'));
    expect(error.code).toBe('KERNEL_UNAVAILABLE');
    expect(error.hint).toContain('auto');
    expect(selectKernels('wasm', failing('relaxed')).name).toBe('wasm-baseline');
    expect(failure('native', WASM_ONLY)).toMatchObject({
      code: 'KERNEL_UNAVAILABLE',
      message: 'native cannot be used (native kernels are not built: no C compiler)',
      hint: 'install one',
    });
  });

  test('modules that were never built: the hint says how to build them', () => {
    const sources: KernelSources = {
      ...WASM_ONLY,
      compile: () => {
        throw new KernelError('KERNELS_NOT_BUILT', 'relaxed.wasm cannot be read', { hint: 'npm run prepare' });
      },
    };
    expect(failure('wasm', sources)).toMatchObject({ code: 'KERNEL_UNAVAILABLE', hint: 'npm run prepare' });
    expect(selectKernels('auto', sources).warning).toContain('relaxed.wasm cannot be read; npm run prepare');
  });

  test.skipIf(native.length === 0)('a variant of another processor is refused by name', () => {
    const other = process.arch === 'x64' ? 'native-neon' : 'native-avx2';
    expect(failure(other, { compile: compileWasm, loadNative }).hint).toContain(native[0]);
  });
});

test('a name without its module is refused', () => {
  expect(() => kernelsFor('wasm-baseline', null)).toThrow(KernelError);
});

test('the self-test has a scene for every kernel and fits its memory', () => {
  const scenes = selfTestScenes();
  expect(new Set(scenes.map(scene => scene.op))).toEqual(new Set(Object.keys(SCENES)));
  expect(Math.max(...scenes.map(scene => scene.size))).toBeLessThanOrEqual(SELF_TEST_PAGES * 65536);
});

test('the self-test names a missing kernel', () => {
  const memory = newMemory();
  const { softmax: _, ...rest } = kernelsFor('reference', null)(memory);
  expect(selfTest(rest as Kernels, memory)).toBe('softmax is missing');
});

// Either compiler of V8 may run any call, and processors differ in what the relaxed dot becomes.
test.each(['--no-liftoff', '--liftoff-only', '--no-enable-avx-vnni', '--no-enable-avx'])(
  'the self-test passes under %s',
  flag => {
    const script = `
    import { selectKernels } from ${JSON.stringify(new URL('./select.ts', import.meta.url).href)};
    for (const choice of ${JSON.stringify(IMPLEMENTATIONS.map(one => one.name))}) console.log(selectKernels(choice).name);`;
    const args = [flag, '--input-type=module', '--eval', script];
    const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
    expect(stdout.trim().split('\n'), stderr).toEqual(IMPLEMENTATIONS.map(one => one.name));
  },
);

test('kernels cross into a worker by name and module', async () => {
  const memory = newMemory();
  const { name, module } = selectKernels('auto');
  const select = new URL('./select.ts', import.meta.url).href;
  const source = `
    const { parentPort, workerData } = require('node:worker_threads');
    import(${JSON.stringify(select)}).then(({ kernelsFor }) => {
      const { name, module, memory } = workerData;
      const kernels = kernelsFor(name, module)(memory);
      kernels.add(1024, 1024, 0, 5);
      parentPort.postMessage(kernels.name);
    });`;
  const values = new Float32Array(memory.buffer, 1024, 6).fill(2);
  const worker = new Worker(source, { eval: true, workerData: { name, module, memory } });
  expect(await once(worker, 'message')).toEqual([name]);
  expect([...values]).toEqual([4, 4, 4, 4, 4, 2]);
  await worker.terminate();
});

function newMemory(): WebAssembly.Memory {
  return new WebAssembly.Memory({ initial: SELF_TEST_PAGES, maximum: SELF_TEST_PAGES, shared: true });
}
