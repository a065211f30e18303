import { globSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';

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
