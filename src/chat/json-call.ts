/** A call as a JSON object: {"name": ..., "arguments": {...}}. */

import type { GrammarSpec } from '../grammar/api.ts';
import type { ToolDefinition } from './api.ts';
import type { CallDraft } from './draft.ts';
import type { Input, Reading } from './input.ts';

/** What models call the arguments. */
const ARGUMENTS = new Set(['arguments', 'parameters']);

/** Reads one call object; false when it is none. Members other than name and arguments are passed over. */
export function* readCallObject(input: Input, draft: CallDraft): Reading<boolean> {
  if (!(yield* input.literal('{'))) return false;
  let name: string | null = null;
  let hasArguments = false;
  /** Arguments that came before the name. */
  let early = '';
  do {
    yield* input.space();
    const key = yield* readJson(input);
    yield* input.space();
    if (key === null || !key.startsWith('"') || !(yield* input.literal(':'))) return false;
    yield* input.space();
    const member = parseString(key);
    if (member !== null && ARGUMENTS.has(member)) {
      if (hasArguments) return false;
      hasArguments = true;
      if (name === null) early = (yield* readArguments(input, () => {})) ?? '';
      else if ((yield* readArguments(input, text => draft.add(text))) === null) return false;
      if (name === null && early === '') return false;
    } else {
      const value = yield* readJson(input);
      if (value === null) return false;
      if (member === 'name') {
        const text = parseString(value);
        if (name !== null || text === null || !draft.begin(text)) return false;
        name = text;
        draft.add(early);
      }
    }
    yield* input.space();
  } while (yield* input.literal(','));
  if (name === null || !(yield* input.literal('}'))) return false;
  if (!hasArguments) draft.add('{}');
  return draft.finish();
}

/** Gives the JSON text of the arguments; models may write it as a string. Null when it is cut or no value. */
function* readArguments(input: Input, give: (text: string) => void): Reading<string | null> {
  if (yield* input.sees('{')) return yield* readJson(input, give);
  const value = yield* readJson(input);
  const text = value === 'null' ? '{}' : value === null ? null : parseString(value);
  if (text !== null) give(text);
  return text;
}

/**
 * Reads one JSON value and returns its text; null when the text ends inside, or no value comes. `give` gets it in parts. Only
 * brackets and quotes are looked at: whoever uses the text parses it. Control characters that a model wrote into a string
 * unescaped are escaped.
 */
export function* readJson(input: Input, give?: (part: string) => void): Reading<string | null> {
  const parts: string[] = [];
  const state: JsonState = { depth: 0, inString: false, escaped: false };
  for (;;) {
    const text = yield* input.some();
    if (text === '') return null;
    if (parts.length === 0 && !/^[{["]/.test(text)) return yield* readScalar(input);
    const { end, out } = scan(text, state);
    input.take(end);
    parts.push(out);
    give?.(out);
    if (state.depth === 0 && !state.inString) return parts.join('');
  }
}

interface JsonState {
  depth: number;
  inString: boolean;
  escaped: boolean;
}

/** Goes on with a value up to its end or the end of the text. */
function scan(text: string, state: JsonState): { end: number; out: string } {
  let out = '';
  let from = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (state.inString) {
      if (code < 0x20) {
        // a backslash before it was meant as one, as at the end of a line of shell
        out += text.slice(from, i) + (state.escaped ? '\\' : '') + controlEscape(code);
        from = i + 1;
        state.escaped = false;
      } else if (state.escaped) state.escaped = false;
      else if (code === 0x5c) state.escaped = true;
      else if (code === 0x22) state.inString = false;
      else continue;
    } else if (code === 0x22) state.inString = true;
    else if (code === 0x7b || code === 0x5b) state.depth++;
    else if (code === 0x7d || code === 0x5d) state.depth--;
    if (state.depth <= 0 && !state.inString) return { end: i + 1, out: out + text.slice(from, i + 1) };
  }
  return { end: text.length, out: out + text.slice(from) };
}

function controlEscape(code: number): string {
  return JSON.stringify(String.fromCharCode(code)).slice(1, -1);
}

/** A number or a word. */
function* readScalar(input: Input): Reading<string | null> {
  const text = yield* input.word(/[\s,}\]]/, 64);
  try {
    JSON.parse(text);
    return text;
  } catch {
    return null;
  }
}

function parseString(text: string): string | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'string' ? value : null;
  } catch {
    return null;
  }
}

/** The language of a call object. */
export function callObject({ name, parameters }: ToolDefinition): GrammarSpec {
  const before: GrammarSpec = { kind: 'literal', text: `{"name": ${JSON.stringify(name)}, "arguments": ` };
  return { kind: 'sequence', parts: [before, argumentsObject(parameters), { kind: 'literal', text: '}' }] };
}

/** Arguments are always an object, also where the schema does not say so. */
export function argumentsObject(schema: ToolDefinition['parameters']): GrammarSpec {
  if (schema === undefined || schema === true) return { kind: 'json_object' };
  if (schema === false || schema['type'] !== undefined) return { kind: 'json_schema', schema };
  return Object.keys(schema).length === 0
    ? { kind: 'json_object' }
    : { kind: 'json_schema', schema: { type: 'object', ...schema } };
}
