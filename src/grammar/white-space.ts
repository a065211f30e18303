/**
 * White space between the parts of JSON texts. It is bounded, so that a model cannot answer with it for ever: none, one blank, or a
 * line break with an indentation that fits the deepest place of the schema.
 */

import { alt, type Expr, type RuleMap, repeat, seq, text } from './expr.ts';

/** Blanks of one level of an indentation, at most. */
const LEVEL_BLANKS = 4;
/** Levels that may be indented by a tab each or 4 blanks; up to twice as many by 2 blanks. */
const MAX_LEVELS = 8;

/** The rule `ws` for these rules: objects and lists within each other, and one more, as in a call that has them as its arguments. */
export function whiteSpace(rules: RuleMap, root: Expr): Expr {
  const levels = Math.min(nesting(rules, root) + 1, MAX_LEVELS);
  return alt(
    text(''),
    text(' '),
    seq(text('\n'), alt(repeat(text(' '), 0, levels * LEVEL_BLANKS), repeat(text('\t'), 1, levels))),
  );
}

/** How many brackets of JSON stand within each other, at most MAX_LEVELS. */
function nesting(rules: RuleMap, root: Expr): number {
  const depths = new Map<string, number>();
  const users = new Map<string, Set<string>>();
  for (const [name, body] of rules) {
    for (const target of references(body)) users.set(target, (users.get(target) ?? new Set()).add(name));
  }
  const waiting = new Set(rules.keys());
  for (const name of waiting) {
    waiting.delete(name);
    const depth = Math.min(depthOf(rules.get(name)!, depths), MAX_LEVELS);
    if (depth <= (depths.get(name) ?? 0)) continue;
    depths.set(name, depth);
    for (const user of users.get(name) ?? []) waiting.add(user);
  }
  return depthOf(root, depths);
}

function depthOf(expr: Expr, depths: ReadonlyMap<string, number>): number {
  switch (expr.kind) {
    case 'ref':
      return depths.get(expr.name) ?? 0;
    case 'repeat':
      return depthOf(expr.item, depths);
    case 'alt':
      return Math.max(0, ...expr.options.map(option => depthOf(option, depths)));
    case 'seq': {
      const inner = expr.items.reduce((most, item) => Math.max(most, depthOf(item, depths)), 0);
      return inner + (opens(expr.items) ? 1 : 0);
    }
    default:
      return 0;
  }
}

/** json-text.ts writes nothing else like this. */
function opens(items: readonly Expr[]): boolean {
  return items.some((item, i) => {
    const next = items[i + 1];
    return item.kind === 'text' && /^[[{]$/.test(item.text) && next?.kind === 'ref' && next.name === 'ws';
  });
}

function references(expr: Expr): string[] {
  switch (expr.kind) {
    case 'ref':
      return [expr.name];
    case 'repeat':
      return references(expr.item);
    case 'alt':
      return expr.options.flatMap(references);
    case 'seq':
      return expr.items.flatMap(references);
    default:
      return [];
  }
}
