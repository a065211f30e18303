import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Worker } from 'node:worker_threads';
import { describe, expect, test } from 'vitest';
import { KernelError } from '../common/errors.ts';
import type { KernelChoice, KernelName, Kernels } from './kernels.ts';
import { type CompileVariant, kernelsFor, selectKernels } from './select.ts';
import { SELF_TEST_PAGES, selfTest, selfTestScenes } from './self-test.ts';
import { IMPLEMENTATIONS, MISSING, SCENES } from './test-support.ts';
import { compileWasm, type WasmVariant } from './wasm/wasm.ts';

const hasRelaxed = MISSING.length === 0;

/** An engine that lacks relaxed SIMD, or everything. */
const failing =
  (...variants: WasmVariant[]): CompileVariant =>
  variant => {
    if (variants.includes(variant)) throw new WebAssembly.CompileError(`no ${variant} here`);
    return compileWasm(variant);
  };

/** An engine that miscomputes one instruction: every f32x4.div of the module becomes f32x4.mul. */
const wrong: CompileVariant = variant => {
  const bytes = readFileSync(new URL(`./wasm/build/${variant}.wasm`, import.meta.url));
  const [div, mul] = [Buffer.from([0xfd, 0xe7, 0x01]), Buffer.from([0xfd, 0xe6, 0x01])];
  for (let at = bytes.indexOf(div); at >= 0; at = bytes.indexOf(div, at)) mul.copy(bytes, at);
  return new WebAssembly.Module(bytes);
};

function failure(choice: KernelChoice, compile: CompileVariant): KernelError {
  try {
    selectKernels(choice, compile);
  } catch (error) {
    if (error instanceof KernelError) return error;
  }
  throw new Error('did not throw a KernelError');
}

test.skipIf(!hasRelaxed)('auto takes the relaxed kernels without a word', () => {
  const selected = selectKernels('auto');
  expect(selected).toMatchObject({ name: 'wasm-relaxed', note: null });
  expect(selected.module).toBeInstanceOf(WebAssembly.Module);
  expect(selectKernels('wasm').name).toBe('wasm-relaxed');
});

test('an explicit choice is what runs', () => {
  const choices: KernelName[] = ['reference', 'wasm-baseline', ...(hasRelaxed ? (['wasm-relaxed'] as const) : [])];
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
    expect(selected.note).toContain('wasm-relaxed cannot be used (no relaxed here)');
  });

  test('auto ends with the reference and names both reasons', () => {
    const selected = selectKernels('auto', failing('relaxed', 'baseline'));
    expect(selected).toMatchObject({ name: 'reference', module: null });
    expect(selected.note).toContain('no relaxed here');
    expect(selected.note).toContain('no baseline here');
  });

  test('kernels that miscompute are not used', () => {
    const selected = selectKernels('auto', wrong);
    expect(selected.name).toBe('reference');
    expect(selected.note).toContain('self-test failed: quantise');
  });

  test('kernels that miscompute are an error when they were asked for', () => {
    expect(failure('wasm-relaxed', wrong)).toMatchObject({
      code: 'KERNEL_UNAVAILABLE',
      details: { choice: 'wasm-relaxed' },
    });
  });

  test('wasm never becomes the reference', () => {
    const error = failure('wasm', failing('relaxed', 'baseline'));
    expect(error.code).toBe('KERNEL_UNAVAILABLE');
    expect(error.hint).toContain('auto');
    expect(selectKernels('wasm', failing('relaxed')).name).toBe('wasm-baseline');
  });

  test('modules that were never built: the hint says how to build them', () => {
    const notBuilt: CompileVariant = () => {
      throw new KernelError('KERNELS_NOT_BUILT', 'relaxed.wasm cannot be read', { hint: 'npm run prepare' });
    };
    expect(failure('wasm', notBuilt)).toMatchObject({ code: 'KERNEL_UNAVAILABLE', hint: 'npm run prepare' });
    expect(selectKernels('auto', notBuilt).note).toContain('relaxed.wasm cannot be read; npm run prepare');
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
      kernels.scale(1024, 3, 0, 5);
      parentPort.postMessage(kernels.name);
    });`;
  const values = new Float32Array(memory.buffer, 1024, 6).fill(2);
  const worker = new Worker(source, { eval: true, workerData: { name, module, memory } });
  expect(await once(worker, 'message')).toEqual([name]);
  expect([...values]).toEqual([6, 6, 6, 6, 6, 2]);
  await worker.terminate();
});

function newMemory(): WebAssembly.Memory {
  return new WebAssembly.Memory({ initial: SELF_TEST_PAGES, maximum: SELF_TEST_PAGES, shared: true });
}
