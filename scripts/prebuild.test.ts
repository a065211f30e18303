import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { prebuiltManifest, prebuiltReadme } from './prebuild.ts';

const root = path.join(import.meta.dirname, '..');
const isBuilt = existsSync(path.join(root, 'src/kernels/native/build/colibri.node'));
const { version } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'prebuilt-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

test('the package is for one platform and has the version of colibri-moe', () => {
  const own = { version: '3.2.1', license: 'Apache-2.0' };
  const linux = prebuiltManifest(own, 'linux', 'x64', 'musl');
  expect(linux).toMatchObject({
    name: 'colibri-moe-native-linux-x64',
    version: '3.2.1',
    license: 'Apache-2.0',
    os: ['linux'],
    cpu: ['x64'],
    libc: ['musl'],
  });
  expect(prebuiltManifest(own, 'darwin', 'arm64')).not.toHaveProperty('libc');
  expect(
    prebuiltReadme(linux)
      .split('\n')
      .filter(line => line && !line.startsWith('#')),
  ).toHaveLength(3);
  expect(prebuiltReadme(linux)).toContain('colibri-moe 3.2.1');
});

test.skipIf(!isBuilt)('is packed, installed without scripts, and loads without a compiler', () => {
  const run = (command: string, args: string[], cwd: string) => execFileSync(command, args, { cwd, encoding: 'utf8' });
  const told = run(process.execPath, ['scripts/prebuild.ts', folder], root).trim();
  const name = `colibri-moe-native-${process.platform}-${process.arch}`;
  expect(told).toBe(path.join(folder, `${name}-${version}.tgz`));
  writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}');
  run('npm', ['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', told], folder);
  const installed = path.join(folder, 'node_modules', name);
  expect(readdirSync(installed).sort()).toEqual(['LICENSE', 'README.md', 'colibri.node', 'package.json']);
  const places = {
    build: path.join(folder, 'none'),
    importer: path.join(folder, 'x.js'),
    manifest: path.join(root, 'package.json'),
  };
  const script = `
    import { loadNative } from ${JSON.stringify(path.join(root, 'src/kernels/native/native.ts'))};
    console.log(loadNative(${JSON.stringify(places)}).variants.at(-1));`;
  expect(run(process.execPath, ['--input-type=module', '--eval', script], folder)).toBe('scalar\n');
});
