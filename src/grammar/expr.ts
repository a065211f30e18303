/**
 * Languages as trees: every front end (schema, regular expression, GBNF, literal) builds these, and print.ts writes them for the
 * grammar library. Characters are Unicode code points; surrogates are in no class.
 */

/** Inclusive, ascending, not touching. */
export type Ranges = readonly (readonly [number, number])[];

export type Expr =
  | { readonly kind: 'text'; readonly text: string }
  /** One character. */
  | { readonly kind: 'class'; readonly ranges: Ranges }
  | { readonly kind: 'ref'; readonly name: string }
  | { readonly kind: 'seq'; readonly items: readonly Expr[] }
  /** No options: the empty language. */
  | { readonly kind: 'alt'; readonly options: readonly Expr[] }
  /** max may be Infinity. */
  | { readonly kind: 'repeat'; readonly item: Expr; readonly min: number; readonly max: number };

export type RuleMap = Map<string, Expr>;

/** A set of rules and where it starts. */
export interface Language {
  readonly rules: RuleMap;
  readonly root: string;
}

export const NEVER: Expr = { kind: 'alt', options: [] };
export const EMPTY: Expr = { kind: 'text', text: '' };

export const text = (value: string): Expr => ({ kind: 'text', text: value });
export const ref = (name: string): Expr => ({ kind: 'ref', name });
export const repeat = (item: Expr, min: number, max = Number.POSITIVE_INFINITY): Expr =>
  max === 0 ? EMPTY : min === 1 && max === 1 ? item : { kind: 'repeat', item, min, max };
export const star = (item: Expr): Expr => repeat(item, 0);
export const optional = (item: Expr): Expr => repeat(item, 0, 1);

export function seq(...items: readonly Expr[]): Expr {
  const flat = items.flatMap(item => (item.kind === 'seq' ? item.items : isEmpty(item) ? [] : [item]));
  if (flat.some(isNever)) return NEVER;
  return flat.length === 1 ? flat[0] : { kind: 'seq', items: flat };
}

export function alt(...options: readonly Expr[]): Expr {
  const flat = options.flatMap(option => (option.kind === 'alt' ? option.options : [option]));
  return flat.length === 1 ? flat[0] : { kind: 'alt', options: flat };
}

export function isNever(expr: Expr): boolean {
  return expr.kind === 'alt' && expr.options.length === 0;
}

export function isEmpty(expr: Expr): boolean {
  return (expr.kind === 'text' && expr.text === '') || (expr.kind === 'seq' && expr.items.length === 0);
}

export const LAST_CODE_POINT = 0x10ffff;
/** Every character. */
export const ANY_CHARACTER: Ranges = [
  [0, 0xd7ff],
  [0xe000, LAST_CODE_POINT],
];

export function charClass(ranges: readonly (readonly [number, number])[]): Expr {
  const normal = intersect(normalise(ranges), ANY_CHARACTER);
  return normal.length === 0 ? NEVER : { kind: 'class', ranges: normal };
}

/** Ranges of any order and overlap in their normal form. */
export function normalise(ranges: readonly (readonly [number, number])[]): Ranges {
  const sorted = [...ranges].filter(([from, to]) => from <= to).sort((a, b) => a[0] - b[0]);
  const out: [number, number][] = [];
  for (const [from, to] of sorted) {
    const last = out.at(-1);
    if (last && from <= last[1] + 1) last[1] = Math.max(last[1], to);
    else out.push([from, to]);
  }
  return out;
}

/** The characters that are not in `ranges`, which must be normal. */
export function complement(ranges: Ranges): Ranges {
  const out: [number, number][] = [];
  let next = 0;
  for (const [from, to] of ranges) {
    if (from > next) out.push([next, from - 1]);
    next = to + 1;
  }
  if (next <= LAST_CODE_POINT) out.push([next, LAST_CODE_POINT]);
  return intersect(out, ANY_CHARACTER);
}

export function intersect(a: Ranges, b: Ranges): Ranges {
  const out: [number, number][] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const from = Math.max(a[i][0], b[j][0]);
    const to = Math.min(a[i][1], b[j][1]);
    if (from <= to) out.push([from, to]);
    if (a[i][1] < b[j][1]) i++;
    else j++;
  }
  return out;
}
