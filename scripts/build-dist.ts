/**
 * Builds dist/, what the npm package runs: compiled JavaScript, the WebAssembly modules, and the C sources that are compiled
 * where the package is installed. Node refuses TypeScript inside node_modules, so nothing there may be a .ts file. dist/
 * mirrors src/, so paths relative to a module stay true.
 */

import { spawnSync } from 'node:child_process';
import { copyFileSync, cpSync, existsSync, globSync, mkdirSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';

const root = path.join(import.meta.dirname, '..');
const dist = path.join(root, 'dist');
const WASM = 'kernels/wasm/build';
const C = 'kernels/native/c';

rmSync(dist, { recursive: true, force: true });
run('scripts/prepare.js');
run('node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json');
const wasm = path.join(root, 'src', WASM);
mkdirSync(path.join(dist, WASM), { recursive: true });
// Not .name.wasm, which an unfinished build left.
for (const name of globSync('[a-z]*.wasm', { cwd: wasm }))
  copyFileSync(path.join(wasm, name), path.join(dist, WASM, name));
cpSync(path.join(root, 'src', C), path.join(dist, C), { recursive: true });
const missing = missingFiles();
for (const line of missing) console.error(line);
if (missing.length > 0) process.exit(1);

function run(script: string, ...args: string[]): void {
  const { status } = spawnSync(process.execPath, [script, ...args], { cwd: root, stdio: 'inherit' });
  if (status !== 0) process.exit(status ?? 1);
}

/**
 * What the type checker cannot see: the WebAssembly modules, and worker files that are only named by a string
 * (tsconfig.build.json lists them, because only what is reached from its files is compiled).
 */
function missingFiles(): string[] {
  const files = readdirSync(dist, { recursive: true, encoding: 'utf8' });
  const problems = files.some(name => name.endsWith('.wasm'))
    ? []
    : [`no .wasm file in src/${WASM}: run npm run prepare`];
  for (const name of files.filter(file => file.endsWith('.js'))) {
    const text = readFileSync(path.join(dist, name), 'utf8');
    for (const [, worker] of text.matchAll(/\bworkerUrl\(\s*'([^']+)'/g)) {
      const target = path.join(path.dirname(name), `${worker}.js`);
      if (existsSync(path.join(dist, target))) continue;
      problems.push(`dist/${name} starts dist/${target}, which is missing: add it to tsconfig.build.json`);
    }
  }
  return problems;
}
