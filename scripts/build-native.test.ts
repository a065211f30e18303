/** `build-native` with a stand-in compiler: when it builds, what it leaves behind, and what it says. */

import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';

const SCRIPT = path.join(import.meta.dirname, 'build-native.js');
const BUILD = 'src/kernels/native/build';
/** Of this architecture, all but the plain one. */
const FAST = process.arch === 'x64' ? ['avx512vnni', 'avxvnni', 'avx2'] : ['neon'];

/**
 * Writes its arguments and its source to the output, and a line to a log. The source may order failures: `no NAME` for one
 * variant, `no addon`, and `half` for a linker that dies after half of the output.
 */
const COMPILER = `#!${process.execPath}
const fs = require('node:fs');
const args = process.argv.slice(2);
if (args.includes('--version')) process.exit(0);
const from = args[args.indexOf('-c') + 1];
const text = args.includes('-c') ? fs.readFileSync(from, 'utf8') : fs.readFileSync(args.find(name => name.endsWith('.o')), 'utf8');
const variant = args.find(name => name.startsWith('-DVARIANT='))?.slice(10) ?? (args.includes('-c') ? 'addon' : 'link');
fs.appendFileSync(__dirname + '/log', variant + '\\n');
const to = args[args.indexOf('-o') + 1];
fs.writeFileSync(to, args.join(' ') + '\\n' + text);
const broken = text.includes('no ' + variant + '.') || (variant === 'link' && text.includes('half'));
if (broken) { console.error('line 1: cannot'); process.exit(1); }
`;

let root: string;
const at = (...parts: string[]): string => path.join(root, ...parts);
const built = (): string => readFileSync(at(BUILD, 'colibri.node'), 'utf8');
const reason = (): string => readFileSync(at(BUILD, 'reason.txt'), 'utf8').trim();
const left = (): string[] => readdirSync(at(BUILD)).sort();
/** What the compiler was run for. */
const runs = (): string[] => {
  const log = at('bin/log');
  return existsSync(log) ? readFileSync(log, 'utf8').trim().split('\n').sort() : [];
};
const WHOLE = ['addon', 'link', 'scalar', ...FAST].sort();

beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), 'native-'));
  mkdirSync(at('scripts'));
  cpSync(SCRIPT, at('scripts/build-native.js'));
  writeFileSync(at('package.json'), '{"type":"module"}');
  mkdirSync(at('node_modules/node-api-headers'), { recursive: true });
  writeFileSync(at('node_modules/node-api-headers/index.js'), "exports.include_dir = '/headers';");
  addSources();
});
afterEach(() => rmSync(root, { recursive: true }));

function addSources(text = '', folder = 'src'): void {
  mkdirSync(at(folder, 'kernels/native/c'), { recursive: true });
  for (const name of ['variant.c', 'addon.c']) writeFileSync(at(folder, 'kernels/native/c', name), text);
}

function addCompiler(name = 'cc'): string {
  mkdirSync(at('bin'), { recursive: true });
  writeFileSync(at('bin/package.json'), '{"type":"commonjs"}');
  writeFileSync(at('bin', name), COMPILER);
  chmodSync(at('bin', name), 0o755);
  return at('bin', name);
}

/** Only compilers of this test are found. */
function environment(CC?: string): NodeJS.ProcessEnv {
  return { PATH: at('bin'), ...(CC ? { CC } : {}) };
}

function build(CC?: string): { status: number | null; output: string } {
  const options = { encoding: 'utf8', env: environment(CC) } as const;
  const { status, stdout, stderr } = spawnSync(process.execPath, [at('scripts/build-native.js')], options);
  return { status, output: stdout + stderr };
}

const SILENT = { status: 0, output: '' };

describe('builds', () => {
  beforeEach(() => void addCompiler());

  test('every variant once, then nothing more', () => {
    expect(build()).toEqual(SILENT);
    expect(runs()).toEqual(WHOLE);
    expect(left()).toEqual(['colibri.node', 'target']);
    expect(built()).toContain('-DHAVE_scalar');
    for (const name of FAST) expect(built()).toContain(`-DHAVE_${name}`);
    expect(built()).toContain('-I/headers');
    expect(built()).toContain('-ffp-contract=off');
    expect(built()).toContain('-Werror=implicit-function-declaration');
    expect(build()).toEqual(SILENT);
    expect(runs()).toEqual(WHOLE);
  });

  test('again after a source or the script changed, or the output or the machine is another', () => {
    build();
    const later = (minutes: number): Date => new Date(Date.now() + minutes * 60_000);
    const changes: (() => void)[] = [
      () => utimesSync(at('src/kernels/native/c/addon.c'), later(1), later(1)),
      () => utimesSync(at('scripts/build-native.js'), later(2), later(2)),
      () => rmSync(at(BUILD, 'colibri.node')),
      () => writeFileSync(at(BUILD, 'target'), 'plan9-vax'),
      () => rmSync(at(BUILD, 'target')),
    ];
    for (const change of changes) {
      rmSync(at('bin/log'));
      change();
      expect(build()).toEqual(SILENT);
      expect(runs(), String(change)).toEqual(WHOLE);
    }
  });

  test('a source that is edited while the compiler runs is newer than the output', () => {
    const source = at('src/kernels/native/c/addon.c');
    const before = new Date(Date.now() - 5000);
    for (const file of [source, at('src/kernels/native/c/variant.c'), at('scripts/build-native.js')])
      utimesSync(file, before, before);
    build();
    const { mtimeMs } = statSync(at(BUILD, 'colibri.node'));
    expect(mtimeMs).toBeGreaterThanOrEqual(statSync(source).mtimeMs);
    expect(mtimeMs).toBeLessThan(Date.now() - 2000);
  });

  test('in an installed package, where the sources lie in dist', () => {
    rmSync(at('src'), { recursive: true });
    addSources('', 'dist');
    expect(build()).toEqual(SILENT);
    expect(readdirSync(at('dist/kernels/native/build')).sort()).toEqual(['colibri.node', 'target']);
    expect(existsSync(at('src'))).toBe(false);
  });

  test('two at once do not meet', async () => {
    const children = [0, 1].map(() => spawn(process.execPath, [at('scripts/build-native.js')], { env: environment() }));
    const codes = await Promise.all(children.map(child => once(child, 'close')));
    expect(codes).toEqual([
      [0, null],
      [0, null],
    ]);
    expect(left()).toEqual(['colibri.node', 'target']);
    expect(built()).toContain('-DHAVE_scalar');
  });

  test('and clears away what builds left that were killed long ago', () => {
    mkdirSync(at(BUILD, '.build-old'), { recursive: true });
    mkdirSync(at(BUILD, '.build-running'));
    const longAgo = new Date(Date.now() - 24 * 3600 * 1000);
    utimesSync(at(BUILD, '.build-old'), longAgo, longAgo);
    build();
    expect(left()).toEqual(['.build-running', 'colibri.node', 'target']);
  });
});

test.each(FAST)('a compiler that does not know %s builds the others, and that is told', name => {
  addCompiler();
  addSources(`no ${name}.`);
  const { status, output } = build();
  expect(status).toBe(0);
  expect(output).toMatch(
    /^native kernels are built in part \(the compiler could not build \w+ \(.*line 1: cannot\)\)\n$/,
  );
  expect(reason()).toContain(`could not build ${name} (`);
  expect(built()).not.toContain(`HAVE_${name}`);
  expect(built()).not.toContain(`/${name}.o`);
  for (const other of ['scalar', ...FAST.filter(one => one !== name)]) {
    expect(built()).toContain(`-DHAVE_${other}`);
    expect(built()).toContain(`/${other}.o`);
  }
  // A better compiler.
  addSources();
  expect(build()).toEqual(SILENT);
  expect(left()).toEqual(['colibri.node', 'target']);
});

describe('CC', () => {
  test('is the one that is asked, with its options', () => {
    addCompiler('cc');
    const other = addCompiler('other');
    expect(build(`${other} -wrapped`)).toEqual(SILENT);
    expect(built()).toMatch(/^-wrapped /);
  });

  test('may be a path with spaces', () => {
    addCompiler('my cc');
    expect(build(at('bin/my cc'))).toEqual(SILENT);
    expect(runs()).toEqual(WHOLE);
  });

  test('that does not run is not replaced by another', () => {
    addCompiler('cc');
    expect(build('/nowhere/cc')).toMatchObject({ status: 0 });
    expect(reason()).toBe('no C compiler (tried /nowhere/cc)');
    expect(runs()).toEqual([]);
  });

  test('is not needed: gcc and clang are looked for, too', () => {
    addCompiler('clang');
    expect(build()).toEqual(SILENT);
    expect(runs()).toEqual(WHOLE);
  });
});

describe('fails without an error', () => {
  test('when there is no compiler, and tries again the next time', () => {
    expect(build()).toEqual({
      status: 0,
      output: 'native kernels are not built, WebAssembly serves (no C compiler (tried cc, gcc, clang))\n',
    });
    expect(left()).toEqual(['reason.txt']);
    expect(reason()).toBe('no C compiler (tried cc, gcc, clang)');
    addCompiler();
    expect(build()).toEqual(SILENT);
    expect(left()).toEqual(['colibri.node', 'target']);
  });

  test('when the headers are not installed', () => {
    addCompiler();
    rmSync(at('node_modules'), { recursive: true });
    expect(build().status).toBe(0);
    expect(reason()).toBe('the package node-api-headers is not installed');
  });

  test('when the build folder cannot be made', () => {
    addCompiler();
    writeFileSync(at(BUILD), '');
    const { status, output } = build();
    expect(status).toBe(0);
    expect(output).toMatch(/^native kernels are not built, WebAssembly serves \(.*EEXIST/);
  });

  test.each(['no scalar.', 'no addon.', 'half'])('when the sources are broken (%s): the old addon goes', text => {
    addCompiler();
    build();
    expect(existsSync(at(BUILD, 'colibri.node'))).toBe(true);
    addSources(text);
    const later = new Date(Date.now() + 60_000);
    utimesSync(at('src/kernels/native/c/addon.c'), later, later);
    const { status, output } = build();
    expect(status).toBe(0);
    expect(output).toMatch(
      /^native kernels are not built, WebAssembly serves \(.*ended with status 1: line 1: cannot\)\n$/,
    );
    expect(reason()).toContain('line 1: cannot');
    expect(left()).toEqual(['reason.txt', 'target']);
  });
});

test('a package without sources: nothing to do', () => {
  rmSync(at('src'), { recursive: true });
  expect(build()).toEqual(SILENT);
  expect(existsSync(at('src'))).toBe(false);
});
