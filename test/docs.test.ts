import { execFileSync } from 'node:child_process';
import { globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';

/** Everything a reader may copy a command from. */
const DOCUMENTS = globSync(['*.md', 'docs/**/*.md', 'src/**/*.md', 'models/**/*.md', 'bench/**/*.md', '.ci/*']).sort();

/**
 * The npm package named coli belongs to somebody else. These commands would fetch it where ours is not installed:
 * npx, npm exec, pnpm dlx, yarn dlx, bunx without a word that forbids fetching, and installs of that name.
 */
function fetchingCommands(text: string): string[] {
  const name = String.raw`(?:coli(?:@[\w.^~-]+)?)(?![\w/-])`;
  const flags = String.raw`((?:\s+-{1,2}[\w-]+(?:=\S+)?)*)`;
  const runners = new RegExp(
    String.raw`\b(?:npx|npm exec|npm x|pnpx|pnpm dlx|yarn dlx|bunx)${flags}\s+(?:--\s+)?${name}`,
    'g',
  );
  const installs = new RegExp(String.raw`\b(?:npm (?:install|i|add)|yarn add|pnpm add|bun add)${flags}\s+${name}`, 'g');
  const found = [...text.matchAll(runners)].filter(match => !/--no-install\b|--no\b/.test(match[1]));
  return [...found, ...text.matchAll(installs)].map(match => match[0]);
}

describe('the search itself', () => {
  test.each([
    'npx coli run "hi"',
    'npx -y coli chat',
    'npx --yes coli@latest',
    'npm exec -- coli run',
    'npm exec coli',
    'pnpm dlx coli',
    'bunx coli run',
    'npm install coli',
    'npm i -g coli',
  ])('finds %s', command => {
    expect(fetchingCommands(`Run \`${command}\` now`)).toHaveLength(1);
  });

  test.each([
    'npx --no-install coli run "hi"',
    'npx --no coli run',
    'node bin/coli.js run',
    'coli run',
    'npm install colibri-moe',
    'npx coli-tools',
    'npm ci && node bin/coli.js',
  ])('allows %s', command => {
    expect(fetchingCommands(`Run \`${command}\` now`)).toEqual([]);
  });
});

test('no document has a command that would fetch a package named coli', () => {
  const found = DOCUMENTS.flatMap(file =>
    fetchingCommands(readFileSync(file, 'utf8')).map(command => `${file}: ${command}`),
  );
  expect(found).toEqual([]);
});

test('the package is not named coli, and its command is', () => {
  const manifest = JSON.parse(readFileSync('package.json', 'utf8'));
  expect(manifest.name).not.toBe('coli');
  expect(Object.keys(manifest.bin)).toEqual(['coli']);
});

test('the program in the quick start runs', () => {
  const section = readFileSync('docs/quickstart.md', 'utf8').split('## From a program')[1];
  const [, program] = /```js\n(.*?)```/s.exec(section)!;
  expect(program).toContain("from 'colibri-moe'");
  const source = program.replace("'colibri-moe'", JSON.stringify(pathToFileURL(path.resolve('src/index.ts')).href));
  const folder = mkdtempSync(path.join(os.tmpdir(), 'coli-program-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(path.join(folder, 'program.mjs'), source);
  const output = execFileSync(process.execPath, [path.join(folder, 'program.mjs')], { encoding: 'utf8' });
  expect(output).toMatch(
    /lines.*\nstop after \d+ tokens\n(\d+) tokens, \d+ predicted, the last with -log p = \d+\.\d{3}\n$/s,
  );
});

test('every benchmark is named in the change log', () => {
  const names = [...readFileSync('bench/main.ts', 'utf8').matchAll(/^ {2}(\w+): \{\s+about/gm)].map(([, name]) => name);
  expect(names.length).toBeGreaterThan(4);
  const line = /^- Benchmarks: .*$/m.exec(readFileSync('CHANGELOG.md', 'utf8'))![0];
  for (const name of names) expect(line).toContain(`\`${name}\``);
});
