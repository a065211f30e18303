/**
 * Languages of texts as automata, for what expressions cannot say by themselves: two of them at once, a length for all of a text, and
 * whether one lies within the other. Expressions here have no references.
 */

import { alt, charClass, EMPTY, type Expr, normalise, type Ranges, type RuleMap, ref, seq, star } from './expr.ts';
import { spelled } from './json-text.ts';

/** Steps of all automata of one schema: some 0.5 s. Patterns exist whose automata are exponentially large. */
export const MAX_STEPS = 4_000_000;
/** Rules of one string: the library computes a mask for each. */
const MAX_RULES = 600;
const MAX_NFA_STATES = 20_000;

/** The work that is left; throws TooLarge when it is spent. */
export class Budget {
  #left = MAX_STEPS;

  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0) throw new TooLarge();
  }
}

export class TooLarge extends Error {}

interface Nfa {
  /** Per state: letters and where they lead. */
  readonly edges: (readonly [Expr & { kind: 'class' }, number])[][];
  readonly free: number[][];
  readonly end: number;
}

/** One state of a product: for each machine the states it may be in, sorted, and the characters so far. */
interface Node {
  readonly sets: readonly (readonly number[])[];
  readonly length: number;
}

/** All of the expressions at once, with min..max characters: rules for JSON strings, quotes not included. */
export function intersection(
  parts: readonly Expr[],
  [min, max]: readonly [number, number],
  rules: RuleMap,
  prefix: string,
  budget: Budget,
): Expr {
  const machines = parts.map(part => toNfa(part, budget));
  const letters = alphabet(machines);
  const cap = max === Number.POSITIVE_INFINITY ? min : max;
  const ends = ({ sets, length }: Node) => length >= min && sets.every((set, i) => set.includes(machines[i].end));
  const nodes: Node[] = [start(machines)];
  const numbers = new Map([[nodeKey(nodes[0]), 0]]);
  const steps: Map<number, number[]>[] = [];
  for (let at = 0; at < nodes.length; at++) {
    const targets = new Map<number, number[]>();
    steps.push(targets);
    const node = nodes[at];
    if (node.length === max) continue;
    for (const [i, letter] of letters.entries()) {
      const sets = step(machines, node.sets, letter, budget);
      if (sets.some(set => set.length === 0)) continue;
      const next = { sets, length: Math.min(node.length + 1, cap) };
      const id = nodeKey(next);
      const known = numbers.get(id) ?? nodes.push(next) - 1;
      numbers.set(id, known);
      const through = targets.get(known);
      if (through) through.push(i);
      else targets.set(known, [i]);
    }
  }
  const useful = leadingTo(nodes.map(ends), steps);
  if (useful.size > MAX_RULES) throw new TooLarge();
  for (const at of useful) {
    const by = (list: readonly number[]) => spelled(charClass(normalise(list.flatMap(i => letters[i]))));
    const others = [...steps[at]].filter(([target]) => target !== at && useful.has(target));
    const onward = others.map(([target, list]) => seq(by(list), ref(`${prefix}-q${target}`)));
    const loop = steps[at].get(at);
    const body = alt(...(ends(nodes[at]) ? [EMPTY] : []), ...onward);
    rules.set(`${prefix}-q${at}`, loop ? seq(star(by(loop)), body) : body);
  }
  return useful.has(0) ? ref(`${prefix}-q0`) : alt();
}

/** Every text of `inner` belongs to `outer`. */
export function isWithin(inner: Expr, outer: Expr, budget: Budget): boolean {
  const machines = [toNfa(inner, budget), toNfa(outer, budget)];
  const letters = alphabet(machines);
  const nodes = [start(machines)];
  const seen = new Set([nodeKey(nodes[0])]);
  for (const { sets } of nodes) {
    if (sets[0].includes(machines[0].end) && !sets[1].includes(machines[1].end)) return false;
    for (const letter of letters) {
      const next = { sets: step(machines, sets, letter, budget), length: 0 };
      const id = nodeKey(next);
      if (next.sets[0].length === 0 || seen.has(id)) continue;
      seen.add(id);
      nodes.push(next);
    }
  }
  return true;
}

function toNfa(expr: Expr, budget: Budget): Nfa {
  const edges: Nfa['edges'] = [[]];
  const free: number[][] = [[]];
  const state = () => {
    if (edges.length >= MAX_NFA_STATES) throw new TooLarge();
    edges.push([]);
    return free.push([]) - 1;
  };
  /** Adds what leads through `part`; returns where it ends. */
  const add = (part: Expr, from: number): number => {
    budget.spend(1);
    switch (part.kind) {
      case 'text':
        return [...part.text].reduce((at, character) => {
          const code = character.codePointAt(0)!;
          return add({ kind: 'class', ranges: [[code, code]] }, at);
        }, from);
      case 'class': {
        const to = state();
        edges[from].push([part, to]);
        return to;
      }
      case 'seq':
        return part.items.reduce((at, item) => add(item, at), from);
      case 'alt': {
        const to = state();
        for (const option of part.options) {
          const begin = state();
          free[from].push(begin);
          free[add(option, begin)].push(to);
        }
        return to;
      }
      case 'repeat': {
        let at = from;
        for (let i = 0; i < part.min; i++) at = add(part.item, at);
        const to = state();
        const last = part.max === Number.POSITIVE_INFINITY ? part.min + 1 : part.max;
        for (let i = part.min; i < last; i++) {
          const begin = state();
          free[at].push(to, begin);
          at = add(part.item, begin);
          if (part.max === Number.POSITIVE_INFINITY) free[at].push(begin);
        }
        free[at].push(to);
        return to;
      }
      case 'ref':
        throw new TypeError('an expression with references');
    }
  };
  const end = add(expr, 0);
  return { edges, free, end };
}

/** Sets of characters that no class of the machines tells apart. */
function alphabet(machines: readonly Nfa[]): Ranges[] {
  const classes = new Map<string, Ranges>();
  for (const { edges } of machines) {
    for (const [{ ranges }] of edges.flat()) classes.set(ranges.join(';'), ranges);
  }
  const all = [...classes.values()];
  const cuts = [...new Set(all.flat().flatMap(([from, to]) => [from, to + 1]))].sort((a, b) => a - b);
  const letters = new Map<string, [number, number][]>();
  for (let i = 0; i + 1 < cuts.length; i++) {
    const from = cuts[i];
    const signature = all.map(ranges => (contains(ranges, from) ? '1' : '0')).join('');
    if (!signature.includes('1')) continue;
    const range: [number, number] = [from, cuts[i + 1] - 1];
    const letter = letters.get(signature);
    if (letter) letter.push(range);
    else letters.set(signature, [range]);
  }
  return [...letters.values()];
}

function contains(ranges: Ranges, code: number): boolean {
  return ranges.some(([from, to]) => code >= from && code <= to);
}

function start(machines: readonly Nfa[]): Node {
  return { sets: machines.map(machine => closure(machine, [0])), length: 0 };
}

function step(machines: readonly Nfa[], sets: Node['sets'], letter: Ranges, budget: Budget): Node['sets'] {
  return machines.map((machine, i) => {
    budget.spend(1 + sets[i].length);
    const reached = sets[i].flatMap(at =>
      machine.edges[at].filter(([{ ranges }]) => contains(ranges, letter[0][0])).map(([, to]) => to),
    );
    const set = closure(machine, reached);
    budget.spend(set.length);
    return set;
  });
}

function closure({ free }: Nfa, from: readonly number[]): number[] {
  const found = new Set(from);
  for (const at of found) for (const to of free[at]) found.add(to);
  return [...found].sort((a, b) => a - b);
}

function nodeKey({ sets, length }: Node): string {
  return `${length}:${sets.join('|')}`;
}

/** Nodes from which an end can be reached. */
function leadingTo(ends: readonly boolean[], steps: readonly ReadonlyMap<number, unknown>[]): Set<number> {
  const before: number[][] = ends.map(() => []);
  for (const [at, targets] of steps.entries()) for (const target of targets.keys()) before[target].push(at);
  const found = new Set(ends.flatMap((end, at) => (end ? [at] : [])));
  for (const at of found) for (const earlier of before[at]) found.add(earlier);
  return found;
}
