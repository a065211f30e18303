// npm's `prepare`: compiles the AssemblyScript kernels when an input is newer than an output. Plain JavaScript for the
// oldest Node that npm may run it with. The check reads a few directory entries, so that doing nothing stays cheap.

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const script = fileURLToPath(import.meta.url);
const root = path.join(path.dirname(script), '..');
const sources = path.join(root, 'src/kernels/wasm/assembly');
const build = path.join(root, 'src/kernels/wasm/build');
const compiler = path.join(root, 'node_modules/assemblyscript');
/** Version of the compiler that made the outputs. */
const stamp = path.join(build, 'compiler');

const VARIANTS = { baseline: 'simd,threads', relaxed: 'simd,threads,relaxed-simd' };
const OPTIONS = [
  ...['--runtime', 'stub', '--use', 'abort=', '--noAssert', '-O3', '--converge'],
  // One arena is the memory of the module: imported, shared, up to 4 GiB. Static data stays in page 0.
  ...['--importMemory', '--noExportMemory', '--sharedMemory', '--initialMemory', '1', '--maximumMemory', '65536'],
  ...['--memoryBase', '1024'],
  // Helpers take vectors; no vector crosses into JavaScript.
  ...['--disableWarning', '112'],
];

/** Text of a file, or null when it cannot be read. */
function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}

function compilerVersion() {
  const text = read(path.join(compiler, 'package.json'));
  return text === null ? null : JSON.parse(text).version;
}

const output = variant => path.join(build, `${variant}.wasm`);

function isFresh(version) {
  if (version !== null && read(stamp) !== version) return false;
  const inputs = [script, ...readdirSync(sources).map(name => path.join(sources, name))];
  const newest = Math.max(...inputs.map(file => statSync(file).mtimeMs));
  return Object.keys(VARIANTS).every(variant => {
    const written = statSync(output(variant), { throwIfNoEntry: false });
    return written !== undefined && written.mtimeMs >= newest;
  });
}

/** Compiles one variant to a temporary file beside the output; resolves with that file's name. */
function compile(variant) {
  const temporary = path.join(build, `.${variant}.${process.pid}.wasm`);
  const args = [path.join(compiler, 'bin/asc.js'), path.join(sources, 'index.ts'), '-o', temporary, ...OPTIONS];
  args.push('--enable', VARIANTS[variant]);
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', text => (said += text));
    child.on('error', reject);
    child.on('close', status => {
      if (status === 0) resolve(temporary);
      else reject(new Error(`the compiler ended with status ${status} for the ${variant} kernels\n${said}`));
    });
  });
}

async function main() {
  // An installed package has compiled kernels and no sources.
  if (!existsSync(sources)) return;
  const version = compilerVersion();
  if (isFresh(version)) return;
  if (version === null) {
    console.log(
      'prepare: AssemblyScript is not installed, so the WebAssembly kernels are not built (the slow reference',
    );
    console.log('prepare: kernels still work). Install with development packages, then run npm run prepare.');
    return;
  }
  mkdirSync(build, { recursive: true });
  const variants = Object.keys(VARIANTS);
  const results = await Promise.allSettled(variants.map(compile));
  const failed = results.find(result => result.status === 'rejected');
  if (failed) {
    for (const result of results) if (result.status === 'fulfilled') rmSync(result.value, { force: true });
    throw failed.reason;
  }
  // Outputs appear whole or not at all, and the stamp comes last: an interrupted build is built again.
  for (const [i, variant] of variants.entries()) renameSync(results[i].value, output(variant));
  writeFileSync(stamp, version);
}

main().catch(error => {
  console.error(`prepare: ${error.message}`);
  process.exitCode = 1;
});
