import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { allowedImports, checkTree } from './check-imports.ts';

const roots: string[] = [];
afterEach(() => {
  for (const root of roots.splice(0)) rmSync(root, { recursive: true, force: true });
});

/** Problems found in a tree that holds these files. */
function problemsOf(files: Record<string, string>, longFiles: Record<string, string> = {}): string[] {
  return reportOf(files, longFiles).problems;
}

function reportOf(files: Record<string, string>, longFiles: Record<string, string> = {}) {
  const root = mkdtempSync(path.join(os.tmpdir(), 'check-imports-'));
  roots.push(root);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    writeFileSync(path.join(root, name), text);
  }
  return checkTree(root, longFiles);
}

describe('import direction', () => {
  test.each([
    ['src/common/a.ts', '../formats/b.ts'],
    ['src/formats/a.ts', '../quant/b.ts'],
    ['src/formats/a.ts', '../tokenizer/b.ts'],
    ['src/kernels/wasm/a.ts', '../../storage/b.ts'],
    ['src/storage/a.ts', '../kernels/b.ts'],
    ['src/layers/a.ts', '../engine/b.ts'],
    ['src/models/a.ts', '../storage/b.ts'],
    ['src/models/a.ts', '../kernels/b.ts'],
    ['src/models/a.ts', '../tokenizer/b.ts'],
    ['src/tokenizer/a.ts', '../quant/b.ts'],
    ['src/engine/a.ts', '../cli/b.ts'],
    ['src/eval/a.ts', '../convert/b.ts'],
    ['src/convert/a.ts', '../cli/b.ts'],
    ['src/index.ts', './cli/b.ts'],
    ['src/engine/a.ts', '../../scripts/b.ts'],
  ])('%s may not import %s', (file, target) => {
    const problems = problemsOf({ [file]: `import { x } from '${target}';\n` });
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(new RegExp(`^${file}:1: .*may not import`));
  });

  test.each([
    ['src/quant/a.ts', '../formats/b.ts'],
    ['src/kernels/wasm/a.ts', '../reference/b.ts'],
    ['src/models/a.ts', '../layers/b.ts'],
    ['src/tokenizer/a.ts', '../formats/b.ts'],
    ['src/engine/a.ts', '../tokenizer/b.ts'],
    ['src/cli/commands/a.ts', '../../eval/b.ts'],
    ['src/cli/commands/a.ts', '../../convert/b.ts'],
    ['src/eval/a.ts', '../engine/b.ts'],
    ['src/index.ts', './engine/b.ts'],
    ['src/engine/a.test.ts', '../../test/support.ts'],
    ['src/quant/a.test.ts', '../kernels/b.ts'],
    ['src/engine/a.ts', 'node:fs'],
  ])('%s may import %s', (file, target) => {
    expect(problemsOf({ [file]: `import { x } from '${target}';\n` })).toEqual([]);
  });

  test.each([
    `export { x } from '../engine/b.ts';`,
    `import type { X } from '../engine/b.ts';`,
    `import '../engine/b.ts';`,
    `const b = await import('../engine/b.ts');`,
    `const url = workerUrl('../engine/b', import.meta.url);`,
    `import {\n  x,\n} from '../engine/b.ts';`,
  ])('sees the form %j', code => {
    expect(problemsOf({ 'src/layers/a.ts': `${code}\n` })).toHaveLength(1);
  });

  test('ignores comments and the name of a worker beside the caller', () => {
    const code = `// import x from '../engine/b.ts'\nnew Worker(workerUrl('lane-worker', import.meta.url));\n`;
    expect(problemsOf({ 'src/layers/a.ts': code })).toEqual([]);
  });

  test('refuses a folder that nobody placed in the order', () => {
    expect(problemsOf({ 'src/utils/a.ts': '' })).toEqual([expect.stringContaining('no place in the import order')]);
  });

  test('is a direction: no two folders may import each other', () => {
    const folders = 'common formats quant kernels storage compute experts layers models engine tokenizer server cli';
    for (const a of folders.split(' ')) {
      for (const b of allowedImports(a) ?? []) expect(allowedImports(b), `${a} <-> ${b}`).not.toContain(a);
    }
  });
});

describe('packages', () => {
  test.each([
    ['src/engine/a.ts', '@huggingface/tokenizers'],
    ['src/cli/a.ts', '@huggingface/jinja'],
    ['src/eval/a.ts', 'commander'],
    ['src/kernels/a.ts', 'zod'],
    ['src/common/a.ts', 'vitest'],
  ])('%s may not import %s', (file, name) => {
    expect(problemsOf({ [file]: `import x from '${name}';\n` })).toHaveLength(1);
  });

  test.each([
    ['src/tokenizer/a.ts', '@huggingface/tokenizers'],
    ['src/cli/a.ts', 'commander'],
    ['src/models/a.ts', 'zod'],
    ['src/common/a.test.ts', 'vitest'],
  ])('%s may import %s', (file, name) => {
    expect(problemsOf({ [file]: `import x from '${name}';\n` })).toEqual([]);
  });
});

describe('arithmetic', () => {
  const forbidden = ['Math.exp(x)', 'Math.log2(x)', 'Math.pow(x, 3)', 'Math.tanh(x)', 'Mathf.sin(x)', 'x ** 3'];
  test.each(forbidden)('%s is refused where results are computed', code => {
    for (const folder of ['kernels/reference', 'layers', 'models']) {
      expect(problemsOf({ [`src/${folder}/a.ts`]: `const y = ${code};\n` })).toHaveLength(1);
    }
    expect(problemsOf({ 'src/engine/sampler.ts': `const y = ${code};\n` })).toHaveLength(1);
  });

  test('Math functions taken out of Math are refused too', () => {
    expect(problemsOf({ 'src/layers/a.ts': 'const { exp } = Math;\n' })).toHaveLength(1);
  });

  test('exact operations, powers of two, comments, tests and other folders are free', () => {
    const exact = 'const y = Math.sqrt(x) + Math.fround(x) + Math.max(x, 1) + 2 ** -24; // not Math.exp\n';
    expect(
      problemsOf({
        'src/layers/a.ts': exact,
        'src/layers/b.ts': '/** Math.exp differs between machines. */\n',
        'src/kernels/a.test.ts': 'const y = Math.exp(1);\n',
        'src/engine/plan.ts': 'const y = Math.log2(8);\n',
      }),
    ).toEqual([]);
  });
});

describe('length', () => {
  const long = 'x;\n'.repeat(401);

  test('a file over the cap is a problem unless it is listed', () => {
    expect(problemsOf({ 'bench/a.ts': long })).toEqual([expect.stringContaining('401 lines')]);
    expect(problemsOf({ 'bench/a.ts': long }, { 'bench/a.ts': 'one table' })).toEqual([]);
    expect(problemsOf({ 'bench/a.ts': 'x;\n'.repeat(400) })).toEqual([]);
  });

  test('packages that a folder installed for itself are not ours', () => {
    expect(problemsOf({ 'bench/peer/node_modules/a/b.ts': long })).toEqual([]);
  });

  test('a stale entry of the list is a problem', () => {
    expect(problemsOf({}, { 'bench/gone.ts': 'one table' })).toEqual([expect.stringContaining('bench/gone.ts')]);
  });

  test('counts lines, and takes the median of sources only', () => {
    const report = reportOf({ 'src/common/a.ts': 'a;\n', 'src/common/b.ts': 'a;\nb;\n', 'src/common/b.test.ts': long });
    expect(report).toMatchObject({ files: 3, lines: 404, medianLines: 2 });
  });
});
