/**
 * Runs a parsed template within bounds. The library has no limits of its own, but every node of the tree passes through one
 * method, which is the place to count and to look at values.
 *
 * What is bounded here: evaluated nodes, items that loops and filters walk over, that calls and slices give or that become
 * text, the length of every string and list, and the items of range(). Work inside one built-in filter is bounded by the
 * sizes of its inputs.
 */

import { RequestError, TokenizerError } from '../common/errors.ts';
import { Environment, Interpreter, type JinjaEnvironment, type JinjaNode, type JinjaValue } from './jinja-library.ts';
import { strftime } from './strftime.ts';
import { filterName, visit } from './template-syntax.ts';

/** Steps of one rendering. Conversations of several thousand messages stay below; this many take about a second. */
export const MAX_TEMPLATE_STEPS = 3_000_000;
/** Characters of the rendered text and of every string on the way: several times the longest context in use. */
export const MAX_TEMPLATE_OUTPUT_CHARACTERS = 16 * 2 ** 20;
/** Items of any list; walking a longer one a few times would take all steps. */
export const MAX_TEMPLATE_LIST_ITEMS = 200_000;
/** A step is charged for every so many characters of a string that a node gives, because its user will read them. */
const CHARACTERS_PER_STEP = 1024;
/** Slicing a string makes a list of its characters first. */
const SLICED_CHARACTERS_PER_STEP = 16;
/** The library makes two scopes for every item that a loop visits. */
const STEPS_PER_ITEM = 4;
/** Filters that write a list with all that it contains; `~` and output do too. */
const WRITING_FILTERS = new Set([
  'tojson',
  'string',
  'join',
  'indent',
  'trim',
  'unique',
  'sort',
  'groupby',
  'dictsort',
]);
/** Fields with the statements of a block, whose values are output. */
const BLOCKS = ['body', 'alternate', 'defaultBlock'];
/** Filters that do not walk over their list. */
const CONSTANT_TIME_FILTERS = new Set(['length', 'first', 'last']);

/** How the guard sees what the template does with strings. */
export interface TemplateHooks {
  /** A string of which only a yes or no is wanted (`==`, `in`, startswith), or that people read. */
  plain(text: string): string;
  /** A string that is looked for in another one, whose parts go on (split, replace). */
  pattern(text: string): string;
  /** The result of `tojson`. */
  json(text: string): string;
}

/** Facts about the nodes of a template, collected once. */
export interface TemplateNodes {
  readonly program: JinjaNode;
  /** Nodes whose value is compared. */
  readonly compared: ReadonlySet<JinjaNode>;
  /** Nodes whose value is looked for in a string that goes on. */
  readonly patterns: ReadonlySet<JinjaNode>;
  /** Nodes whose list is walked by their parent. */
  readonly walked: ReadonlySet<JinjaNode>;
  /** Nodes whose value is written, or compared, with all that it contains. */
  readonly written: ReadonlySet<JinjaNode>;
  /** Nodes that are sliced. */
  readonly sliced: ReadonlySet<JinjaNode>;
  /** Nodes that are put together with another one by `+` or `~`. */
  readonly joined: ReadonlySet<JinjaNode>;
  /** Text outside tags and string literals inside. */
  readonly literals: readonly string[];
}

const COMPARISONS = new Set(['in', 'not in', '==', '!=']);
const COMPARING_METHODS = new Set(['startswith', 'endswith']);
const SEARCHING_METHODS = new Set(['split', 'replace', 'strip', 'lstrip', 'rstrip']);

export function analyseNodes(program: JinjaNode): TemplateNodes {
  const nodes = {
    program,
    compared: new Set<JinjaNode>(),
    patterns: new Set<JinjaNode>(),
    walked: new Set<JinjaNode>(),
    written: new Set<JinjaNode>(),
    sliced: new Set<JinjaNode>(),
    joined: new Set<JinjaNode>(),
    literals: [] as string[],
  };
  visit(program, node => analyse(node, nodes));
  return nodes;
}

function analyse(
  node: JinjaNode,
  into: Record<'compared' | 'patterns' | 'walked' | 'written' | 'sliced' | 'joined', Set<JinjaNode>> & {
    literals: string[];
  },
): void {
  for (const field of BLOCKS) if (Array.isArray(node[field])) addAll(into.written, node[field] as JinjaNode[]);
  // What a replacement writes is output; what it looks for is not.
  const searched = (call: JinjaNode) => (call.args as JinjaNode[]).slice(0, 1);
  if (node.type === 'StringLiteral') into.literals.push(String(node.value));
  else if (node.type === 'BinaryExpression') {
    const sides = [node.left, node.right] as JinjaNode[];
    addAll(into.walked, sides);
    if ((node.operator as JinjaNode).value === '~') addAll(into.written, sides);
    if (/^[+~]$/.test(String((node.operator as JinjaNode).value))) addAll(into.joined, sides);
    if (COMPARISONS.has(String((node.operator as JinjaNode).value))) addAll(into.compared, sides);
  } else if (node.type === 'CallExpression') {
    const callee = node.callee as JinjaNode;
    if (callee.type !== 'MemberExpression') return;
    const method = String((callee.property as JinjaNode).value);
    if (SEARCHING_METHODS.has(method)) addAll(into.patterns, searched(node));
    if (COMPARING_METHODS.has(method)) addAll(into.compared, [callee.object as JinjaNode, ...searched(node)]);
  } else if (node.type === 'FilterExpression') {
    const name = filterName(node) ?? '';
    if (!CONSTANT_TIME_FILTERS.has(name)) into.walked.add(node.operand as JinjaNode);
    if (WRITING_FILTERS.has(name)) into.written.add(node.operand as JinjaNode);
    const filter = node.filter as JinjaNode;
    if (filter.type === 'CallExpression' && name === 'replace') addAll(into.patterns, searched(filter));
  } else if (node.type === 'MemberExpression') {
    if ((node.property as JinjaNode).type === 'SliceExpression') into.sliced.add(node.object as JinjaNode);
  } else if (node.type === 'For') {
    const iterable = node.iterable as JinjaNode;
    into.walked.add(iterable.type === 'SelectExpression' ? (iterable.lhs as JinjaNode) : iterable);
  }
}

function addAll<T>(set: Set<T>, items: readonly T[]): void {
  for (const item of items) set.add(item);
}

/** The template refused the conversation by raise_exception. */
class Raised extends Error {}

/** Renders with `variables`; `now` is what strftime_now shows. */
export function runTemplate(
  nodes: TemplateNodes,
  variables: Record<string, unknown>,
  hooks: TemplateHooks,
  now: Date,
  maxSteps = MAX_TEMPLATE_STEPS,
): string {
  const environment = new Environment();
  for (const [name, value] of Object.entries(globals(now))) environment.set(name, value);
  for (const [name, value] of Object.entries(variables)) {
    if (RESERVED.has(name)) {
      throw new RequestError('BAD_TEMPLATE_VARIABLE', `"${name}" is a name of the template language`, {
        hint: 'give the template variable another name',
      });
    }
    environment.set(name, value);
  }
  try {
    const text = String(new BoundedInterpreter(environment, nodes, hooks, maxSteps).run(nodes.program).value);
    checkLength(text.length);
    return text;
  } catch (error) {
    if (error instanceof TokenizerError) throw error;
    // The library's break and continue are errors without a message.
    const said = hooks.plain((error as Error).message);
    const message = said === '' && !(error instanceof Raised) ? 'break or continue outside a loop' : said;
    if (error instanceof Raised) {
      throw new RequestError('CHAT_TEMPLATE_REFUSED', `the chat template refuses this conversation: ${message}`, {
        hint: 'change the messages as the template asks',
      });
    }
    if (error instanceof RangeError) checkLength(/string length/.test(message) ? Number.POSITIVE_INFINITY : 0);
    throw new TokenizerError('CHAT_TEMPLATE_FAILED', `the chat template failed: ${message}`, {
      hint: 'check the shape of the messages and tools, or use the raw prompt form',
      cause: error,
    });
  }
}

/** Names that a request's variables cannot replace. */
const RESERVED: ReadonlySet<string> = new Set(['namespace', ...Object.keys(globals(new Date(0)))]);

function globals(now: Date): Record<string, unknown> {
  return {
    true: true,
    True: true,
    false: false,
    False: false,
    none: null,
    None: null,
    range,
    raise_exception: (message: unknown) => {
      throw new Raised(/string|number|boolean/.test(typeof message) ? String(message) : 'without a text as its reason');
    },
    strftime_now: (format: unknown) => strftime(now, String(format)),
  };
}

function range(...args: unknown[]): number[] {
  if (args.length === 0 || args.length > 3 || !args.every(Number.isInteger))
    throw new Error('range() takes one to three integers');
  const [start, stop, step] = (args.length === 1 ? [0, args[0], 1] : [args[0], args[1], args[2] ?? 1]) as number[];
  if (step === 0) throw new Error('range() needs a step that is not zero');
  const items = Math.max(0, Math.ceil((stop - start) / step));
  if (items > MAX_TEMPLATE_LIST_ITEMS) throw limit(`range() of ${items} items`, MAX_TEMPLATE_LIST_ITEMS);
  return Array.from({ length: items }, (_, i) => start + i * step);
}

function limit(what: string, most: number): TokenizerError {
  return new TokenizerError('CHAT_TEMPLATE_LIMIT', `the chat template was stopped: ${what}, and the limit is ${most}`, {
    hint: 'shorten the conversation; if it is short, the template is broken or hostile',
    details: { limit: most },
  });
}

function checkLength(characters: number): void {
  if (characters > MAX_TEMPLATE_OUTPUT_CHARACTERS) throw limit('a text grew too long', MAX_TEMPLATE_OUTPUT_CHARACTERS);
}

class BoundedInterpreter extends Interpreter {
  readonly #nodes: TemplateNodes;
  readonly #hooks: TemplateHooks;
  readonly #maxSteps: number;
  #steps = 0;

  constructor(environment: JinjaEnvironment, nodes: TemplateNodes, hooks: TemplateHooks, maxSteps: number) {
    super(environment);
    this.#nodes = nodes;
    this.#hooks = hooks;
    this.#maxSteps = maxSteps;
  }

  override evaluate(node: JinjaNode | undefined, environment: JinjaEnvironment): JinjaValue {
    this.#charge(1);
    const name = node?.type === 'FilterExpression' ? filterName(node) : null;
    // The library gives nothing at all for the first item of an empty list.
    const value =
      (name === 'groupby' ? this.#groupBy(node!, environment) : super.evaluate(node, environment)) ??
      super.evaluate(undefined, environment);
    if (typeof value.value === 'string') {
      checkLength(value.value.length);
      this.#charge(Math.floor(value.value.length / CHARACTERS_PER_STEP));
      if (this.#nodes.sliced.has(node!)) this.#charge(Math.floor(value.value.length / SLICED_CHARACTERS_PER_STEP));
      if (name === 'tojson') value.value = this.#hooks.json(value.value);
    } else if (Array.isArray(value.value)) {
      // The library unpacks lists only.
      if (value.type === 'TupleValue') value.type = 'ArrayValue';
      if (value.value.length > MAX_TEMPLATE_LIST_ITEMS) throw limit('a list grew too long', MAX_TEMPLATE_LIST_ITEMS);
      if (this.#nodes.walked.has(node!)) this.#charge(value.value.length * STEPS_PER_ITEM);
      // Made here, or about to be copied.
      if (node!.type === 'CallExpression' || this.#nodes.sliced.has(node!)) this.#charge(value.value.length);
    }
    // Python cannot add one to a text either; the library would write "[object Map]".
    if (this.#nodes.joined.has(node!) && value.value instanceof Map) throw new Error('a mapping is joined to a text');
    if (this.#nodes.written.has(node!)) this.#chargeContent(value.value);
    if (this.#nodes.compared.has(node!)) return mapStrings(value, text => this.#hooks.plain(text));
    if (this.#nodes.patterns.has(node!)) return mapStrings(value, text => this.#hooks.pattern(text));
    return value;
  }

  #charge(steps: number): void {
    this.#steps += steps;
    if (this.#steps > this.#maxSteps) throw limit('it takes too many steps', this.#maxSteps);
  }

  /** A step for every value inside, as often as it is there: lists that share a list are written several times. */
  #chargeContent(value: unknown): void {
    const inside = value instanceof Map ? value.values() : Array.isArray(value) ? value : [];
    for (const item of inside as Iterable<JinjaValue>) {
      this.#charge(1);
      this.#chargeContent(item.value);
    }
  }

  /** `items|groupby('key')`: [key, items] pairs by ascending key, which the library lacks. */
  #groupBy(node: JinjaNode, environment: JinjaEnvironment): JinjaValue {
    const list = this.evaluate(node.operand as JinjaNode, environment);
    const argument = ((node.filter as JinjaNode).args as JinjaNode[] | undefined)?.[0];
    const attribute = argument ? this.evaluate(argument, environment).value : undefined;
    if (!Array.isArray(list.value) || typeof attribute !== 'string')
      throw new Error('groupby needs a list and an attribute name');
    const groups = new Map<unknown, { key: JinjaValue; items: JinjaValue[] }>();
    for (const item of list.value as JinjaValue[]) {
      const key = item.value instanceof Map ? (item.value.get(attribute) as JinjaValue | undefined) : undefined;
      if (!key) throw new Error(`groupby needs "${attribute}" in every item`);
      const group = groups.get(key.value) ?? { key, items: [] };
      group.items.push(item);
      groups.set(key.value, group);
    }
    const sorted = [...groups.values()].sort((a, b) => compare(a.key.value, b.key.value));
    const List = list.constructor;
    return new List(sorted.map(({ key, items }) => new List([key, new List(items)])));
  }
}

/** `change` applied to a string or to the strings of a list; the same value when nothing changes. */
function mapStrings(value: JinjaValue, change: (text: string) => string): JinjaValue {
  if (value.type === 'StringValue') {
    const text = change(value.value as string);
    return text === value.value ? value : new value.constructor(text);
  }
  if (!Array.isArray(value.value)) return value;
  const before = value.value as JinjaValue[];
  const after = before.map(item => (item.type === 'StringValue' ? mapStrings(item, change) : item));
  return after.every((item, i) => item === before[i]) ? value : new value.constructor(after);
}

/** Strings without regard to case, as the filter's default; numbers by size. */
function compare(a: unknown, b: unknown): number {
  const [x, y] = [a, b].map(key => (typeof key === 'string' ? key.toLowerCase() : (key as number)));
  return x < y ? -1 : x > y ? 1 : 0;
}
