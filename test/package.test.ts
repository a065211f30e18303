import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';

const root = path.join(import.meta.dirname, '..');
const manifest = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));

describe('npm pack', () => {
  let files: { path: string; size: number }[] = [];
  const paths = () => files.map(file => file.path);

  beforeAll(() => {
    execFileSync(process.execPath, ['scripts/build-dist.ts'], { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] });
    // The dist/ just built is what a real pack would hold; its scripts would only build it again.
    const json = execFileSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], {
      cwd: root,
      encoding: 'utf8',
    });
    files = JSON.parse(json)[0].files;
  });

  test('holds what the command needs', () => {
    for (const bin of Object.values<string>(manifest.bin)) expect(paths()).toContain(bin);
    expect(paths()).toEqual(
      expect.arrayContaining([
        'package.json',
        'README.md',
        'LICENSE',
        'NOTICE',
        manifest.exports['.'].default.slice(2),
        manifest.exports['.'].types.slice(2),
        'models/nano/config.json',
        'models/nano/tokenizer.json',
        'models/nano/coli.index.json',
        'models/nano/MODEL_CARD.md',
      ]),
    );
    expect(paths().some(name => /^models\/nano\/.*\.safetensors$/.test(name))).toBe(true);
  });

  test('holds the C sources and what compiles them, but nothing compiled for this machine', () => {
    const sources = readdirSync(path.join(root, 'src/kernels/native/c')).map(name => `dist/kernels/native/c/${name}`);
    expect(sources.length).toBeGreaterThan(5);
    expect(paths()).toEqual(expect.arrayContaining([...sources, 'scripts/build-native.js']));
    expect(paths().filter(name => /\.(node|o|so)$|native\/build/.test(name))).toEqual([]);
    // What the build needs from npm is installed with the package.
    expect(manifest.dependencies).toHaveProperty('node-api-headers');
  });

  test('holds the workers, the commands and every WebAssembly module', () => {
    const compiled = readdirSync(path.join(root, 'src'), { recursive: true, encoding: 'utf8' })
      .filter(name => /(?<!\.test)\.ts$/.test(name) && /worker\.ts$|^cli\/commands\//.test(name))
      .map(name => path.posix.join('dist', name.replace(/\.ts$/, '.js')));
    expect(compiled.length).toBeGreaterThan(5);
    const wasm = readdirSync(path.join(root, 'src/kernels/wasm/build')).filter(name => /^\w+\.wasm$/.test(name));
    expect(wasm.length).toBeGreaterThanOrEqual(2);
    expect(paths()).toEqual(
      expect.arrayContaining([...compiled, ...wasm.map(name => `dist/kernels/wasm/build/${name}`)]),
    );
  });

  test('holds no TypeScript (Node refuses it in node_modules), no tests and no reference packs', () => {
    expect(paths().filter(name => /(?<!\.d)\.[cm]?ts$/.test(name))).toEqual([]);
    expect(
      paths().filter(name => /\.test\.|test-support|^test\/|^src\/|^bench\/|oracle.*\.safetensors|\.map$/.test(name)),
    ).toEqual([]);
  });

  test('no relative import leads out of the package', () => {
    const shipped = new Set(paths());
    for (const name of paths().filter(file => /^(dist|bin)\/.*\.js$/.test(file))) {
      const text = readFileSync(path.join(root, name), 'utf8');
      for (const [, specifier] of text.matchAll(/(?:\bfrom\s+|\bimport\s*\(?\s*)['"](\.[^'"]+)['"]/g)) {
        const target = path.posix.join(path.posix.dirname(name), specifier);
        // The launcher also names the sources of a clone, which it takes when they are there.
        if (name.startsWith('bin/') && target.startsWith('src/')) continue;
        expect(shipped.has(target), `${name} imports ${specifier}`).toBe(true);
      }
    }
  });

  test('the scripts are harmless where the sources of the kernels are missing', () => {
    expect(manifest.scripts.prepare).toBe('node scripts/build-native.js && node scripts/prepare.js');
    const folder = mkdtempSync(path.join(os.tmpdir(), 'installed-'));
    try {
      writeFileSync(path.join(folder, 'package.json'), '{"type":"module"}');
      for (const script of ['scripts/build-native.js', 'scripts/prepare.js']) {
        expect(paths()).toContain(script);
        cpSync(path.join(root, script), path.join(folder, script));
        execFileSync(process.execPath, [script], { cwd: folder });
      }
      expect(readdirSync(folder).sort()).toEqual(['package.json', 'scripts']);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test('documents link only to what is there', () => {
    const shipped = new Set(paths());
    for (const name of paths().filter(file => file.endsWith('.md') && !file.startsWith('models/'))) {
      const text = readFileSync(path.join(root, name), 'utf8');
      for (const [, link] of text.matchAll(/\]\(([^)#\s]+)[^)]*\)/g)) {
        if (/^[a-z]+:/.test(link)) continue;
        const target = path.posix.join(path.posix.dirname(name), link);
        expect(shipped.has(target) || existsSync(path.join(root, target)), `${name} links to ${link}`).toBe(true);
      }
    }
  });
});

describe('manifest', () => {
  const kinds = ['dependencies', 'devDependencies', 'optionalDependencies', 'peerDependencies'];

  test.each(kinds)('%s have exact versions', kind => {
    for (const [name, version] of Object.entries(manifest[kind] ?? {})) {
      expect(version, name).toMatch(/^\d+\.\d+\.\d+(-[\w.]+)?$/);
    }
  });

  test('the lock file agrees with the manifest', () => {
    const lock = JSON.parse(readFileSync(path.join(root, 'package-lock.json'), 'utf8'));
    for (const kind of kinds) expect(lock.packages[''][kind], kind).toEqual(manifest[kind]);
    expect(lock).toMatchObject({ name: manifest.name, version: manifest.version });
  });

  test('the package is not named like its command, which belongs to somebody else on npm', () => {
    expect(manifest.name).toBe('colibri-moe');
    expect(Object.keys(manifest.bin)).toEqual(['coli']);
  });

  test('the only script that runs when somebody installs the package compiles the kernels, and cannot fail', () => {
    expect(manifest.scripts.install).toBe('node scripts/build-native.js');
    expect(manifest.scripts).not.toHaveProperty('preinstall');
    expect(manifest.scripts).not.toHaveProperty('postinstall');
  });

  test('every script names a file that exists', () => {
    for (const [name, command] of Object.entries<string>(manifest.scripts)) {
      for (const [, file] of command.matchAll(/\bnode (\S+)/g)) {
        expect(existsSync(path.join(root, file)), `${name}: ${file}`).toBe(true);
      }
    }
  });
});

test('the error codes of the quick start exist', () => {
  const table = readFileSync(path.join(root, 'docs/quickstart.md'), 'utf8').split('## When something goes wrong')[1];
  const codes = [...table.matchAll(/`([A-Z]+(?:_[A-Z0-9]+)+)`/g)].map(([, code]) => code);
  expect(codes.length).toBeGreaterThan(20);
  const sources = readdirSync(path.join(root, 'src'), { recursive: true, encoding: 'utf8' })
    .filter(name => /(?<!\.test)\.ts$/.test(name))
    .map(name => readFileSync(path.join(root, 'src', name), 'utf8'))
    .join('\n');
  expect(codes.filter(code => code !== 'COLI_DEBUG' && !sources.includes(`'${code}'`))).toEqual([]);
});
