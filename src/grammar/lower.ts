/** What a request asks for, as the text that the grammar library compiles. */

import { RequestError } from '../common/errors.ts';
import type { GrammarSpec } from './api.ts';
import { alt, type Expr, type RuleMap, ref, seq, star, text } from './expr.ts';
import { gbnfLanguage } from './gbnf.ts';
import { JSON_RULES } from './json-text.ts';
import { printLanguage } from './print.ts';
import { prune } from './prune.ts';
import { parseRegex } from './regex.ts';
import { schemaLanguage } from './schema.ts';
import { whiteSpace } from './white-space.ts';

/** Sequences, choices and repetitions within each other, and all parts together. */
const MAX_SPEC_DEPTH = 64;
const MAX_SPEC_PARTS = 5000;

/**
 * Throws RequestError: UNSUPPORTED_SCHEMA, INVALID_SCHEMA, SCHEMA_TOO_LARGE, INVALID_GRAMMAR, GRAMMAR_TOO_LARGE, INVALID_REGEX, and
 * UNSATISFIABLE for a language without any text.
 */
export function lowerSpec(spec: GrammarSpec, specialToken: SpecialToken = () => null): string {
  const rules: RuleMap = new Map();
  const root = new Lowering(rules, specialToken).lower(spec, 0);
  rules.set('answer', root);
  rules.set('ws', whiteSpace(rules, root));
  const language = prune({ rules, root: 'answer' });
  if (!language) {
    throw new RequestError('UNSATISFIABLE', 'no answer can have the required form', {
      hint: 'look for bounds that exclude each other, required properties that are forbidden, and endless recursion',
    });
  }
  return printLanguage(language);
}

/** What stands for a special token in a language; null: there is no such token. */
type SpecialToken = (token: string) => string | null;

class Lowering {
  readonly #rules: RuleMap;
  readonly #specialToken: SpecialToken;
  #parts = 0;

  constructor(rules: RuleMap, specialToken: SpecialToken) {
    this.#rules = rules;
    this.#specialToken = specialToken;
  }

  lower(spec: GrammarSpec, depth: number): Expr {
    if (depth > MAX_SPEC_DEPTH || ++this.#parts > MAX_SPEC_PARTS) {
      throw new RequestError('GRAMMAR_TOO_LARGE', 'the required form has too many parts', {
        details: { maxDepth: MAX_SPEC_DEPTH, maxParts: MAX_SPEC_PARTS },
      });
    }
    const prefix = `s${this.#parts}-`;
    switch (spec.kind) {
      case 'json_schema':
        return schemaLanguage(spec.schema, this.#rules, prefix);
      case 'json_object':
        for (const [name, body] of JSON_RULES) this.#rules.set(name, body);
        return ref('object');
      case 'gbnf':
        return gbnfLanguage(spec.text, this.#rules, prefix);
      case 'regex':
        return parseRegex(spec.pattern, { code: 'INVALID_REGEX', what: 'the regular expression' }).whole;
      case 'literal':
        return literal(spec.text);
      case 'token': {
        const character = this.#specialToken(spec.text);
        return character === null ? literal(spec.text) : text(character);
      }
      case 'sequence':
        return seq(...spec.parts.map(part => this.lower(part, depth + 1)));
      case 'choice':
        return alt(...spec.options.map(option => this.lower(option, depth + 1)));
      case 'repeat': {
        const item = this.#named(prefix, this.lower(spec.item, depth + 1));
        return seq(item, star(seq(literal(spec.separator), item)));
      }
    }
  }

  /** A rule of its own, for what is used twice. */
  #named(prefix: string, body: Expr): Expr {
    const name = `${prefix}item`;
    this.#rules.set(name, body);
    return ref(name);
  }
}

function literal(value: string): Expr {
  if (!value.isWellFormed()) {
    throw new RequestError('INVALID_GRAMMAR', 'a literal of the required form has half a surrogate pair');
  }
  return text(value);
}
