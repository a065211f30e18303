/**
 * `npm run prebuild [-- FOLDER]`: the native kernels of this machine as a package of their own, for machines without a compiler. It is
 * installed beside colibri-moe; native.ts looks for it by name and takes it only if it has the same version.
 */

import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const root = path.join(import.meta.dirname, '..');
const build = path.join(root, 'src/kernels/native/build');

/** The manifest of the package; `libc` as npm names it, for Linux alone. */
export function prebuiltManifest(
  own: { version: string; license: string },
  platform: string,
  arch: string,
  libc?: string,
) {
  return {
    name: `colibri-moe-native-${platform}-${arch}`,
    version: own.version,
    description: `Native kernels of colibri-moe ${own.version} for ${platform}-${arch}${libc ? ` (${libc})` : ''}`,
    license: own.license,
    main: 'colibri.node',
    files: ['colibri.node'],
    os: [platform],
    cpu: [arch],
    ...(libc ? { libc: [libc] } : {}),
  };
}

export function prebuiltReadme({ name, version }: { name: string; version: string }): string {
  return [
    `# ${name}`,
    '',
    `Compiled kernels of colibri-moe ${version}, for machines without a C compiler; they are used when nothing was built there.`,
    'Install this package beside colibri-moe of the same version, which finds it by its name; another version is refused.',
    'Every variant gives the same bits. `coli info` tells which one runs.',
    '',
  ].join('\n');
}

/** "glibc" or "musl" on Linux. */
function libcOf(): string | undefined {
  if (process.platform !== 'linux') return undefined;
  const { header } = process.report.getReport() as { header: { glibcVersionRuntime?: string } };
  return header.glibcVersionRuntime ? 'glibc' : 'musl';
}

/** Writes the package into `folder` and prints its path. */
function main(folder: string): void {
  const { status } = spawnSync(process.execPath, ['scripts/build-native.js'], { cwd: root, stdio: 'inherit' });
  const addon = path.join(build, 'colibri.node');
  const reason = path.join(build, 'reason.txt');
  // A package with some of the variants would be slower than it says.
  if (status !== 0 || !existsSync(addon) || existsSync(reason)) {
    console.error('prebuild: a package needs every variant; install a newer C compiler (gcc 11 or clang 12)');
    process.exit(1);
  }
  const manifest = prebuiltManifest(
    JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8')),
    process.platform,
    process.arch,
    libcOf(),
  );
  const staged = mkdtempSync(path.join(os.tmpdir(), 'prebuild-'));
  try {
    const write = (name: string, text: string) => writeFileSync(path.join(staged, name), text);
    write('package.json', `${JSON.stringify(manifest, null, 2)}\n`);
    write('README.md', prebuiltReadme(manifest));
    copyFileSync(path.join(root, 'LICENSE'), path.join(staged, 'LICENSE'));
    copyFileSync(addon, path.join(staged, 'colibri.node'));
    mkdirSync(folder, { recursive: true });
    const args = ['pack', '--silent', '--ignore-scripts', '--pack-destination', path.resolve(folder)];
    const name = execFileSync('npm', args, { cwd: staged, encoding: 'utf8' }).trim();
    console.log(path.join(folder, name));
  } finally {
    rmSync(staged, { recursive: true });
  }
}

if (import.meta.main) main(process.argv[2] ?? 'prebuilds');
