/** `prepare` with a stand-in compiler: when it builds, when it does not, and what a failed build leaves behind. */

import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';

const SCRIPT = path.join(import.meta.dirname, 'prepare.js');
const SOURCES = 'src/kernels/wasm/assembly';
const BUILD = 'src/kernels/wasm/build';
/** Writes its arguments to the output, and a line to a log. */
const COMPILER = `
const fs = require('node:fs');
const args = process.argv.slice(2);
fs.appendFileSync(__dirname + '/log', 'run\\n');
if (fs.readFileSync(args[0], 'utf8').includes('broken')) { console.error('line 1: broken'); process.exit(1); }
fs.writeFileSync(args[args.indexOf('-o') + 1], args.join(' '));
`;

let root: string;
const at = (...parts: string[]): string => path.join(root, ...parts);

beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), 'prepare-'));
  mkdirSync(at('scripts'));
  cpSync(SCRIPT, at('scripts/prepare.js'));
  writeFileSync(at('package.json'), '{"type":"module"}');
});
afterEach(() => rmSync(root, { recursive: true }));

function prepare(): { status: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync(process.execPath, [at('scripts/prepare.js')], { encoding: 'utf8' });
  return { status, output: stdout + stderr };
}

function addSources(text = 'export {}'): void {
  mkdirSync(at(SOURCES), { recursive: true });
  writeFileSync(at(SOURCES, 'index.ts'), text);
}

function addCompiler(version = '1.0.0'): void {
  mkdirSync(at('node_modules/assemblyscript/bin'), { recursive: true });
  writeFileSync(at('node_modules/assemblyscript/package.json'), JSON.stringify({ version }));
  writeFileSync(at('node_modules/assemblyscript/bin/asc.js'), COMPILER);
}

function compilerRuns(): number {
  const log = at('node_modules/assemblyscript/bin/log');
  return existsSync(log) ? readFileSync(log, 'utf8').split('\n').length - 1 : 0;
}

test('an installed package has no sources: nothing to do', () => {
  expect(prepare()).toEqual({ status: 0, output: '' });
  expect(existsSync(at('src'))).toBe(false);
});

test('builds both variants from one source, then leaves them alone', () => {
  addSources();
  addCompiler();
  expect(prepare()).toEqual({ status: 0, output: '' });
  expect(readdirSync(at(BUILD)).sort()).toEqual(['baseline.wasm', 'compiler', 'relaxed.wasm']);
  expect(readFileSync(at(BUILD, 'relaxed.wasm'), 'utf8')).toMatch(/--enable simd,threads,relaxed-simd$/);
  expect(readFileSync(at(BUILD, 'baseline.wasm'), 'utf8')).toMatch(/--enable simd,threads$/);
  expect(prepare()).toEqual({ status: 0, output: '' });
  expect(compilerRuns()).toBe(2);
});

test('builds again after a source, the script, an output or the compiler changed', () => {
  addSources();
  addCompiler();
  prepare();
  const later = new Date(Date.now() + 60_000);
  const earlier = new Date(Date.now() - 60_000);
  const changes: (() => void)[] = [
    () => utimesSync(at(SOURCES, 'index.ts'), later, later),
    () => utimesSync(at('scripts/prepare.js'), later, later),
    () => rmSync(at(BUILD, 'relaxed.wasm')),
    () => addCompiler('1.0.1'),
  ];
  for (const change of changes) {
    const runs = compilerRuns();
    change();
    expect(prepare().status).toBe(0);
    expect(compilerRuns(), String(change)).toBe(runs + 2);
    for (const file of [at(SOURCES, 'index.ts'), at('scripts/prepare.js')]) utimesSync(file, earlier, earlier);
  }
});

test('without the compiler it says so and succeeds', () => {
  addSources();
  const { status, output } = prepare();
  expect(status).toBe(0);
  expect(output).toContain('AssemblyScript is not installed');
  expect(existsSync(at(BUILD))).toBe(false);
});

test('without the compiler, existing outputs are fine', () => {
  addSources();
  addCompiler();
  prepare();
  rmSync(at('node_modules'), { recursive: true });
  expect(prepare()).toEqual({ status: 0, output: '' });
});

test('a source that does not compile: exit 1, the message of the compiler, no half-made output', () => {
  addSources('broken');
  addCompiler();
  const { status, output } = prepare();
  expect(status).toBe(1);
  expect(output).toContain('line 1: broken');
  expect(readdirSync(at(BUILD))).toEqual([]);
});
