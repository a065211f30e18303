// Compiles the native kernels with the system's C compiler when an input is newer than the output: in a checkout as a part of
// `prepare`, in an installed package as its install step. Never fatal: without them WebAssembly serves, and the reason is
// kept for `coli info`. Plain JavaScript for the oldest Node that npm may run it with.

import { spawn } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
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
// No contraction and no -ffast-math: results are defined to the last bit. -fno-math-errno lets sqrtf be one instruction. A function that
// this compiler lacks fails here, not when the addon is loaded.
const FLAGS = [
  '-std=gnu11',
  '-O3',
  '-fPIC',
  '-ffp-contract=off',
  '-fno-math-errno',
  '-fvisibility=hidden',
  '-Wno-psabi',
  '-Werror=implicit-function-declaration',
];
const DARWIN = process.platform === 'darwin';
const LINK = DARWIN ? ['-bundle', '-undefined', 'dynamic_lookup'] : ['-shared', '-lm'];
// Node for Intel also runs on Apple's own processors, where the compiler's default is another.
const MACHINE = DARWIN ? ['-arch', process.arch === 'x64' ? 'x86_64' : 'arm64'] : [];
/** Time for a slow machine, and an end for a compiler that hangs. */
const TIMEOUT_MS = 300_000;

/** Runs a compiler; rejects with what it said when it fails. */
function run([command, ...first], args) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, [...first, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    // not spawn's own: after a command that does not exist, Node 20 keeps that one running
    const timer = setTimeout(() => child.kill(), TIMEOUT_MS);
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', text => (said += text));
    child.on('error', error => {
      clearTimeout(timer);
      reject(error);
    });
    child.on('close', (status, signal) => {
      clearTimeout(timer);
      if (status === 0) return resolve();
      const lines = said.trim().split('\n').slice(0, 3).join(' | ');
      reject(new Error(`${command} ended with ${signal ?? `status ${status}`}: ${lines}`));
    });
  });
}

/** The command that compiles, in words: CC may hold a wrapper or options, too. Another one never stands in for CC. */
async function findCompiler() {
  const { CC } = process.env;
  const wanted = CC ? [existsSync(CC) ? [CC] : CC.trim().split(/\s+/)] : [['cc'], ['gcc'], ['clang']];
  for (const command of wanted) {
    try {
      await run(command, ['--version']);
      return command;
    } catch {
      // the next one may be there
    }
  }
  throw new Error(`no C compiler (tried ${wanted.map(words => words.join(' ')).join(', ')})`);
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

/** Names of the variants that were built; the others are told in `failed`. The plain one must succeed. */
async function compileVariants(compile, variants, failed) {
  const names = Object.keys(variants);
  const results = await Promise.allSettled(
    names.map(name => compile(name, 'variant.c', [`-DVARIANT=${name}`, ...variants[name]])),
  );
  for (const [i, name] of names.entries()) {
    if (results[i].status === 'fulfilled') continue;
    if (name === 'scalar') throw results[i].reason;
    failed.push(`${name} (${results[i].reason.message})`);
  }
  return names.filter((_, i) => results[i].status === 'fulfilled');
}

/** Builds `output` whole or not at all; gives the variants that this compiler cannot compile. */
async function build(sources, output, mtimeMs) {
  const variants = VARIANTS[process.arch];
  if (!variants || process.platform === 'win32') throw new Error(`not for ${process.platform}-${process.arch}`);
  const headers = headersFolder();
  const compiler = await findCompiler();
  const temporary = mkdtempSync(path.join(path.dirname(output), '.build-'));
  const failed = [];
  try {
    const object = name => path.join(temporary, `${name}.o`);
    const compile = (name, source, flags) =>
      run(compiler, [...FLAGS, ...MACHINE, ...flags, '-c', path.join(sources, source), '-o', object(name)]);
    const built = await compileVariants(compile, variants, failed);
    await compile('addon', 'addon.c', [`-I${headers}`, ...built.map(name => `-DHAVE_${name}`)]);
    const library = path.join(temporary, 'colibri.node');
    await run(compiler, [...MACHINE, ...['addon', ...built].map(object), '-o', library, ...LINK]);
    // As old as what it was made from: a source that was edited meanwhile is newer.
    utimesSync(library, new Date(), new Date(Math.ceil(mtimeMs)));
    renameSync(library, output);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
  return failed;
}

/** What the addon was built for; a folder can be moved to another machine. */
function target() {
  const { glibcVersionRuntime } = process.report.getReport().header;
  return `${process.platform}-${process.arch}${glibcVersionRuntime ? ' glibc' : ''}`;
}

function isFresh(output, stamp, mtimeMs) {
  const written = statSync(output, { throwIfNoEntry: false });
  if (!written || written.mtimeMs < mtimeMs) return false;
  try {
    return readFileSync(stamp, 'utf8') === target();
  } catch {
    return false;
  }
}

/** What earlier builds left when they were killed. */
function removeOldTemporaries(folder) {
  for (const name of readdirSync(folder).filter(entry => entry.startsWith('.build-'))) {
    const at = statSync(path.join(folder, name), { throwIfNoEntry: false });
    if (at && Date.now() - at.mtimeMs > 2 * TIMEOUT_MS)
      rmSync(path.join(folder, name), { recursive: true, force: true });
  }
}

/** Keeps what went wrong for `coli info`, and says it. */
function tell(reason, outcome, text) {
  writeFileSync(reason, `${text}\n`);
  console.log(`${outcome} (${text})`);
}

async function main() {
  if (!folder) return;
  const sources = path.join(folder, 'c');
  const at = name => path.join(folder, 'build', name);
  const [output, reason, stamp] = [at('colibri.node'), at('reason.txt'), at('target')];
  const mtimeMs = newest([script, ...readdirSync(sources).map(name => path.join(sources, name))]);
  if (isFresh(output, stamp, mtimeMs)) return;
  mkdirSync(at('.'), { recursive: true });
  removeOldTemporaries(at('.'));
  try {
    const failed = await build(sources, output, mtimeMs);
    writeFileSync(stamp, target());
    if (failed.length === 0) rmSync(reason, { force: true });
    else tell(reason, 'native kernels are built in part', `the compiler could not build ${failed.join(', ')}`);
  } catch (error) {
    // An addon of older sources must not serve the new ones.
    rmSync(output, { force: true });
    tell(reason, 'native kernels are not built, WebAssembly serves', error.message);
  }
}

main().catch(error => console.log(`native kernels are not built, WebAssembly serves (${error.message})`));
