/** The parts of @huggingface/jinja that are used, with types (its own do not resolve for ES modules). */

import * as library from '@huggingface/jinja';

/** A node of the syntax tree; which other fields it has depends on `type`. */
export interface JinjaNode {
  readonly type: string;
  readonly [field: string]: unknown;
}

/** A value while a template runs: StringValue, ArrayValue, ... */
export interface JinjaValue {
  type: string;
  value: unknown;
  readonly constructor: (new (value: unknown) => JinjaValue) & { readonly prototype: object };
}

export interface JinjaEnvironment {
  /** Declares a variable; the result is `value` in the library's own representation. */
  set(name: string, value: unknown): JinjaValue;
}

interface JinjaInterpreter {
  evaluate(node: JinjaNode | undefined, environment: JinjaEnvironment): JinjaValue;
  run(program: JinjaNode): JinjaValue;
}

interface Library {
  Environment: new () => JinjaEnvironment;
  Interpreter: new (environment: JinjaEnvironment) => JinjaInterpreter;
  tokenize(source: string, options: { lstrip_blocks: boolean; trim_blocks: boolean }): unknown[];
  parse(tokens: unknown[]): JinjaNode;
}

const { tokenize, parse, Environment, Interpreter } = library as unknown as Library;

export { Environment, Interpreter };

// Python writes True and False; the library's own spelling would give other tokens.
const booleans = new Environment().set('example', true).constructor.prototype;
booleans.toString = function (this: JinjaValue) {
  return this.value ? 'True' : 'False';
};

/** Syntax tree of a template with the whitespace rules that transformers uses. Throws whatever the library throws. */
export function parseJinja(source: string): JinjaNode {
  return parse(tokenize(source, { lstrip_blocks: true, trim_blocks: true }));
}
