/** Takes out of a language what can never end, and rules that nothing uses. Without dead ends no answer can get stuck in one. */

import { alt, type Expr, isNever, type Language, NEVER, type RuleMap, repeat, seq } from './expr.ts';

/** The same language; null when it is empty. */
export function prune({ rules, root }: Language): Language | null {
  const productive = productiveRules(rules);
  if (!productive.has(root)) return null;
  const kept: RuleMap = new Map();
  const waiting = [root];
  while (waiting.length > 0) {
    const name = waiting.pop()!;
    if (kept.has(name)) continue;
    const body = without(rules.get(name)!, productive);
    kept.set(name, body);
    references(body, waiting);
  }
  return { rules: kept, root };
}

/** Names of the rules that have at least one finite text: the rules that wait for others are looked at again when those are known. */
function productiveRules(rules: RuleMap): Set<string> {
  const users = new Map<string, string[]>();
  for (const [name, body] of rules) {
    const used: string[] = [];
    references(body, used);
    for (const target of used) {
      const list = users.get(target);
      if (list) list.push(name);
      else users.set(target, [name]);
    }
  }
  const productive = new Set<string>();
  const waiting = [...rules.keys()];
  while (waiting.length > 0) {
    const name = waiting.pop()!;
    if (productive.has(name) || !canEnd(rules.get(name)!, productive)) continue;
    productive.add(name);
    waiting.push(...(users.get(name) ?? []));
  }
  return productive;
}

function canEnd(expr: Expr, productive: ReadonlySet<string>): boolean {
  switch (expr.kind) {
    case 'ref':
      return productive.has(expr.name);
    case 'seq':
      return expr.items.every(item => canEnd(item, productive));
    case 'alt':
      return expr.options.some(option => canEnd(option, productive));
    case 'repeat':
      return expr.min === 0 || canEnd(expr.item, productive);
    default:
      return true;
  }
}

function without(expr: Expr, productive: ReadonlySet<string>): Expr {
  switch (expr.kind) {
    case 'ref':
      return productive.has(expr.name) ? expr : NEVER;
    case 'seq':
      return seq(...expr.items.map(item => without(item, productive)));
    case 'alt':
      return alt(...expr.options.map(option => without(option, productive)).filter(option => !isNever(option)));
    case 'repeat': {
      const item = without(expr.item, productive);
      return isNever(item) ? (expr.min === 0 ? seq() : NEVER) : repeat(item, expr.min, expr.max);
    }
    default:
      return expr;
  }
}

function references(expr: Expr, out: string[]): void {
  if (expr.kind === 'ref') out.push(expr.name);
  else if (expr.kind === 'seq') for (const item of expr.items) references(item, out);
  else if (expr.kind === 'alt') for (const option of expr.options) references(option, out);
  else if (expr.kind === 'repeat') references(expr.item, out);
}
