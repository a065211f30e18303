// Compiles the native kernels with the system's C compiler when an input is newer than the output: in a checkout as a part of
// `prepare`, in an installed package as its install step. Never fatal: without them WebAssembly serves, and the reason is
// kept for `coli info`. Plain JavaScript for the oldest Node that npm may run it with.

import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const script = fileURLToPath(import.meta.url);
const root = path.join(path.dirname(script), '..');
const folder = ['src', 'dist'].map(base => path.join(root, base, 'kernels/native')).find(existsSync);

/** Each variant is the same source with other instructions. */
const VARIANTS = {
  x64: {
    avx512vnni: ['-mavx512f', '-mavx512bw', '-mavx512dq', '-mavx512vl', '-mavx512vnni', '-mf16c'],
    avxvnni: ['-mavx2', '-mf16c', '-mavxvnni'],
    avx2: ['-mavx2', '-mf16c'],
    scalar: [],
  },
  arm64: { neon: ['-march=armv8.2-a+dotprod'], scalar: [] },
};
// No contraction and no -ffast-math: results are defined to the last bit. -fno-math-errno lets sqrtf be one instruction.
const FLAGS = [
  '-std=gnu11',
  '-O3',
  '-fPIC',
  '-ffp-contract=off',
  '-fno-math-errno',
  '-fvisibility=hidden',
  '-Wno-psabi',
];
const LINK = process.platform === 'darwin' ? ['-bundle', '-undefined', 'dynamic_lookup'] : ['-shared', '-lm'];
/** Time for a slow machine, and an end for a compiler that hangs. */
const TIMEOUT_MS = 300_000;

/** Runs a compiler; resolves with what it said, rejects when it fails. */
function run(command, args) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'], timeout: TIMEOUT_MS });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', text => (said += text));
    child.on('error', reject);
    child.on('close', status => {
      if (status === 0) resolve(said);
      else
        reject(new Error(`${command} ended with status ${status}: ${said.trim().split('\n').slice(0, 3).join(' | ')}`));
    });
  });
}

async function findCompiler() {
  const wanted = process.env.CC ? [process.env.CC] : ['cc', 'gcc', 'clang'];
  for (const command of wanted) {
    try {
      await run(command, ['--version']);
      return command;
    } catch {
      // the next one may be there
    }
  }
  throw new Error(`no C compiler (tried ${wanted.join(', ')})`);
}

function headersFolder() {
  try {
    return createRequire(import.meta.url)('node-api-headers').include_dir;
  } catch {
    throw new Error('the package node-api-headers is not installed');
  }
}

function newest(files) {
  return Math.max(...files.map(file => statSync(file).mtimeMs));
}

/** Compiles what this compiler can compile, and links it; the plain variant must succeed. */
async function build(sources, output) {
  const variants = VARIANTS[process.arch];
  if (!variants || process.platform === 'win32') throw new Error(`not for ${process.platform}-${process.arch}`);
  const headers = headersFolder();
  const compiler = await findCompiler();
  const temporary = path.join(path.dirname(output), `.${process.pid}`);
  rmSync(temporary, { recursive: true, force: true });
  mkdirSync(temporary, { recursive: true });
  try {
    const object = name => path.join(temporary, `${name}.o`);
    const compile = (name, source, flags) =>
      run(compiler, [...FLAGS, ...flags, '-c', path.join(sources, source), '-o', object(name)]);
    const names = Object.keys(variants);
    const results = await Promise.allSettled(
      names.map(name => compile(name, 'variant.c', [`-DVARIANT=${name}`, ...variants[name]])),
    );
    const built = names.filter((_, i) => results[i].status === 'fulfilled');
    if (!built.includes('scalar')) throw results[names.indexOf('scalar')].reason;
    await compile('addon', 'addon.c', [`-I${headers}`, ...built.map(name => `-DHAVE_${name}`)]);
    const library = path.join(temporary, 'colibri.node');
    await run(compiler, [...['addon', ...built].map(object), '-o', library, ...LINK]);
    renameSync(library, output);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

async function main() {
  if (!folder) return;
  const sources = path.join(folder, 'c');
  const output = path.join(folder, 'build/colibri.node');
  const reason = path.join(folder, 'build/reason.txt');
  const inputs = [script, ...readdirSync(sources).map(name => path.join(sources, name))];
  const written = statSync(output, { throwIfNoEntry: false });
  if (written && written.mtimeMs >= newest(inputs)) return;
  mkdirSync(path.dirname(output), { recursive: true });
  // An addon of older sources must not serve the new ones.
  rmSync(output, { force: true });
  try {
    await build(sources, output);
    rmSync(reason, { force: true });
  } catch (error) {
    writeFileSync(reason, `${error.message}\n`);
    console.log(`native kernels are not built (${error.message}); the WebAssembly kernels serve`);
  }
}

main().catch(error => console.log(`native kernels are not built (${error.message}); the WebAssembly kernels serve`));
