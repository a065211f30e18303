/** Rules about the source tree that no type checker knows: import direction, packages per folder, forbidden Math, file length. */

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

/**
 * A folder of src/ may import itself and what stands left of it; folders between two arrows do not know each other.
 * Unit tests are free: they are not shipped, and a test may need a later folder to say what is right.
 */
const ORDER = (
  'common > formats > quant > kernels, telemetry > storage > compute > experts > layers > models > engine > ' +
  'server, cli, cluster, eval, convert, mirror, doctor, tune'
)
  .split(' > ')
  .map(row => row.split(', '));
/**
 * Allowed against the order. `tokenizer`, `grammar` and `chat` stand beside it: text matters only from `engine` on. So does
 * `hub`: who computes never downloads.
 */
const ALSO: Record<string, readonly string[]> = {
  tokenizer: ['common', 'formats'],
  grammar: ['common', 'tokenizer'],
  chat: ['common', 'grammar'],
  hub: ['common', 'formats'],
  models: ['chat'],
  engine: ['tokenizer', 'grammar'],
  server: ['tokenizer', 'grammar', 'chat'],
  cli: ['tokenizer', 'chat', 'hub', 'eval', 'convert', 'mirror', 'doctor', 'tune', 'server'],
  cluster: ['tokenizer'],
  eval: ['tokenizer'],
  convert: ['tokenizer', 'hub'],
  doctor: ['tokenizer', 'mirror', 'tune'],
  'index.ts': ['common', 'engine'],
};
/** Forbidden although the order allows it: a family sees no kernel, no thread and no file, and who reads does not compute. */
const NEVER: Record<string, readonly string[]> = {
  models: ['kernels', 'storage'],
  storage: ['kernels'],
};

/** Package -> folders that may import it. Everything else from node_modules is for tests and scripts. */
const PACKAGES: Record<string, readonly string[]> = {
  '@huggingface/hub': ['hub'],
  '@huggingface/jinja': ['tokenizer'],
  '@huggingface/tokenizers': ['tokenizer'],
  commander: ['cli'],
  zod: ['formats', 'experts', 'models', 'engine', 'eval', 'convert', 'mirror', 'doctor', 'tune', 'server'],
  '@mlc-ai/web-xgrammar': ['grammar'],
  fastify: ['server'],
  'fastify-type-provider-zod': ['server'],
  '@fastify/swagger': ['server'],
  '@fastify/helmet': ['server'],
  '@fastify/cors': ['server'],
  'prom-client': ['server'],
};

/** Where results are computed: `Math` transcendentals differ between V8 versions and processors. */
const NUMERIC = /^src\/(kernels\/|layers\/|models\/|engine\/sampler)/;
const TRANSCENDENTAL =
  /\b(?:Native)?Mathf?\.(?:exp|expm1|log|log10|log1p|log2|pow|a?sinh?|a?cosh?|a?tanh?|atan2|cbrt|hypot)\b|\}\s*=\s*Mathf?\b|\*\*/;
/** Powers of two are exact everywhere. */
const POWER_OF_TWO = /\b2 \*\* /g;

const LINE_CAP = 400;
/** Files longer than the cap, each with its reason. */
const LONG_FILES: Record<string, string> = {};

const IMPORT = /(?:\bfrom\s+|\bimport\s*\(?\s*|\bworkerUrl\(\s*(?=['"]\.))['"]([^'"]+)['"]/g;

export interface TreeReport {
  /** One line per violation: `path:line: what is wrong`. */
  problems: string[];
  files: number;
  lines: number;
  /** Lines of the middle source file (tests not counted). */
  medianLines: number;
}

/** Folders of src/ that `folder` may import besides itself, or null when it has no place in the order. */
export function allowedImports(folder: string): string[] | null {
  const row = ORDER.findIndex(names => names.includes(folder));
  if (row < 0 && !(folder in ALSO)) return null;
  const left = row < 0 ? [] : ORDER.slice(0, row).flat();
  return [...left, ...(ALSO[folder] ?? [])].filter(name => !NEVER[folder]?.includes(name));
}

/** Checks every TypeScript file under src, test, bench and scripts of `root`. */
export function checkTree(root: string, longFiles = LONG_FILES): TreeReport {
  const problems: string[] = [];
  const lengths = new Map<string, number>();
  for (const file of ['src', 'test', 'bench', 'scripts'].flatMap(top => typescriptFiles(root, top))) {
    const lines = readFileSync(path.join(root, file), 'utf8').replace(/\n$/, '').split('\n');
    lengths.set(file, lines.length);
    if (lines.length > LINE_CAP && !(file in longFiles)) {
      problems.push(`${file}:${LINE_CAP}: ${lines.length} lines, the cap is ${LINE_CAP}: split it by reason to change`);
    }
    if (file.startsWith('src/')) problems.push(...checkSource(file, lines));
  }
  for (const file of Object.keys(longFiles)) {
    if ((lengths.get(file) ?? 0) <= LINE_CAP) problems.push(`${file}:1: listed as a long file, but it is not one`);
  }
  const sources = [...lengths].filter(([file]) => !isTest(file)).map(([, count]) => count);
  return {
    problems,
    files: lengths.size,
    lines: [...lengths.values()].reduce((sum, count) => sum + count, 0),
    medianLines: sources.sort((a, b) => a - b)[sources.length >> 1] ?? 0,
  };
}

function checkSource(file: string, lines: readonly string[]): string[] {
  const folder = file.split('/')[1];
  const allowed = allowedImports(folder);
  if (!allowed) return [`${file}:1: src/${folder} has no place in the import order (scripts/check-imports.ts)`];
  if (isTest(file)) return [];
  const problems: string[] = [];
  for (const [i, line] of lines.entries()) {
    const code = withoutComment(line);
    for (const [, specifier] of code.matchAll(IMPORT)) {
      const reason = importProblem(file, folder, allowed, specifier);
      if (reason) problems.push(`${file}:${i + 1}: ${reason}`);
    }
    if (NUMERIC.test(file) && TRANSCENDENTAL.test(code.replace(POWER_OF_TWO, ''))) {
      problems.push(
        `${file}:${i + 1}: Math transcendental or ** where results are computed: use the kernels' own routines`,
      );
    }
  }
  return problems;
}

function importProblem(file: string, folder: string, allowed: readonly string[], specifier: string): string | null {
  if (specifier.startsWith('node:')) return null;
  if (!specifier.startsWith('.')) {
    const name = specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/');
    return PACKAGES[name]?.includes(folder) ? null : `${folder} may not import the package ${name}`;
  }
  const target = path.posix.join(path.posix.dirname(file), specifier).split('/');
  if (target[0] !== 'src') return `source may not import ${target.join('/')}, outside src/`;
  if (target[1] === folder || allowed.includes(target[1])) return null;
  return `${folder} may not import ${target[1]} (allowed: ${allowed.join(', ') || 'nothing'})`;
}

function withoutComment(line: string): string {
  return /^\s*(\/\/|\/?\*)/.test(line) ? '' : line.replace(/\s\/\/ .*$/, '');
}

function isTest(file: string): boolean {
  return /^test\/|\.test\.ts$|\/test-support\.ts$/.test(file);
}

/** Without the packages that a folder, such as bench/peer, installed for itself. */
function typescriptFiles(root: string, top: string): string[] {
  if (!existsSync(path.join(root, top))) return [];
  return readdirSync(path.join(root, top), { recursive: true, encoding: 'utf8' })
    .filter(name => name.endsWith('.ts') && !name.endsWith('.d.ts') && !name.split(path.sep).includes('node_modules'))
    .map(name => path.posix.join(top, name))
    .sort();
}

if (import.meta.main) {
  const report = checkTree(path.join(import.meta.dirname, '..'));
  for (const problem of report.problems) console.error(problem);
  console.log(
    `${report.files} TypeScript files, ${report.lines} lines, median source file ${report.medianLines} lines`,
  );
  if (report.problems.length > 0) process.exitCode = 1;
}
