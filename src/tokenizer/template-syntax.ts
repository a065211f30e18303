/** What can be known of a template without running it: where it is broken, and what in it the engine cannot do. */

import { type JinjaNode, parseJinja } from './jinja-library.ts';

/** Looking for the line of an error parses the template once per tag; beyond this many the line is not worth the time. */
const MAX_TAGS_SEARCHED = 1000;

export const TOO_DEEP = 'it is nested too deeply';

export interface SyntaxProblem {
  readonly message: string;
  /** Counted from 1; null when unknown. */
  readonly line: number | null;
}

/** The syntax tree, or what is wrong with the template. */
export function parseTemplate(source: string): { program: JinjaNode } | { problem: SyntaxProblem } {
  const result = tryParse(source);
  return typeof result === 'string'
    ? { problem: { message: result, line: lineOfError(source, result) } }
    : { program: result };
}

function tryParse(source: string): JinjaNode | string {
  try {
    return parseJinja(source);
  } catch (error) {
    const message = (error as Error).message;
    if (error instanceof RangeError) return TOO_DEEP;
    // The parser runs past its last token when a tag or block stays open.
    return error instanceof TypeError ? 'a tag or block is not closed' : message;
  }
}

/** The line of the first tag from which on every longer part of the template fails with the same message. */
function lineOfError(source: string, message: string): number | null {
  const tags = findTags(source);
  if (tags.length > MAX_TAGS_SEARCHED) return null;
  let first = tags.length - 1;
  while (first > 0 && tryParse(source.slice(0, tags[first - 1].end)) === message) first--;
  const at = tags[first]?.start ?? source.length;
  return lineAt(source, at);
}

function lineAt(source: string, position: number): number {
  return source.slice(0, position).split('\n').length;
}

/** Spans of `{% %}` and `{{ }}`; quotes hide closing marks, and an unclosed tag reaches to the end. */
function findTags(source: string): { start: number; end: number }[] {
  const tags: { start: number; end: number }[] = [];
  const opening = /\{[%{#]/g;
  for (let match = opening.exec(source); match; match = opening.exec(source)) {
    const start = match.index;
    if (match[0] === '{#') {
      const close = source.indexOf('#}', start);
      if (close < 0) break;
      opening.lastIndex = close + 2;
      continue;
    }
    const inside = new RegExp(
      `'(?:\\\\.|[^'\\\\])*'|"(?:\\\\.|[^"\\\\])*"|${match[0] === '{%' ? '%\\}' : '\\}\\}'}`,
      'gs',
    );
    inside.lastIndex = start + 2;
    let part = inside.exec(source);
    while (part && !part[0].endsWith('}')) part = inside.exec(source);
    const end = part ? inside.lastIndex : source.length;
    tags.push({ start, end });
    opening.lastIndex = end;
  }
  return tags;
}

const FILTERS = new Set(
  (
    'safe tojson list first last length reverse sort join string unique upper lower title capitalize trim indent int float ' +
    'abs items bool default selectattr rejectattr map replace dictsort get keys values groupby'
  ).split(' '),
);
const TESTS = new Set(
  (
    'boolean callable odd even false true none string number integer iterable mapping sequence lower upper defined undefined ' +
    'equalto eq'
  ).split(' '),
);

/** Filters and tests that will fail when the template reaches them, with their line. */
export function unsupportedConstructs(source: string, program: JinjaNode): string[] {
  const found = new Set<string>();
  visit(program, node => {
    if (node.type === 'FilterExpression' || node.type === 'FilterStatement') {
      const name = filterName(node);
      if (name !== null && !FILTERS.has(name)) found.add(`filter "${name}" (${lineOfWord(source, `\\|\\s*${name}`)})`);
    } else if (node.type === 'TestExpression') {
      const name = String((node.test as JinjaNode).value);
      if (!TESTS.has(name)) found.add(`test "${name}" (${lineOfWord(source, `is\\s+(?:not\\s+)?${name}`)})`);
    }
  });
  return [...found];
}

function lineOfWord(source: string, pattern: string): string {
  const match = new RegExp(`${pattern}\\b`).exec(source);
  return match ? `line ${lineAt(source, match.index)}` : 'line unknown';
}

/** Name of the filter that a filter node applies. */
export function filterName(node: JinjaNode): string | null {
  const filter = node.filter as JinjaNode;
  const name = filter.type === 'CallExpression' ? (filter.callee as JinjaNode) : filter;
  return name.type === 'Identifier' ? String(name.value) : null;
}

/** Calls `look` for every node of the tree, parents first. */
export function visit(node: unknown, look: (node: JinjaNode) => void): void {
  if (Array.isArray(node)) for (const item of node) visit(item, look);
  else if (node instanceof Map) for (const [key, value] of node) visit([key, value], look);
  else if (typeof node === 'object' && node !== null) {
    if (typeof (node as JinjaNode).type === 'string') look(node as JinjaNode);
    for (const child of Object.values(node)) visit(child, look);
  }
}
