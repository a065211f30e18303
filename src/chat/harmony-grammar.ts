/** The languages of answers of gpt-oss whose form is required. They begin behind the reasoning. */

import type { GrammarSpec } from '../grammar/api.ts';
import type { ToolDefinition } from './api.ts';
import { argumentsObject } from './json-call.ts';
import { choiceOf, requiredTools } from './syntax.ts';

const token = (text: string): GrammarSpec => ({ kind: 'token', text });
const literal = (text: string): GrammarSpec => ({ kind: 'literal', text });

/** One call: the token behind it ends the answer, so there are never several. */
export function callLanguage(
  tools: readonly ToolDefinition[],
  choice: 'required' | { readonly name: string },
): GrammarSpec {
  const calls = requiredTools(tools, choice).map(({ name, parameters }): GrammarSpec => {
    const header = [literal(`commentary to=functions.${name} `), token('<|constrain|>'), literal('json')];
    return { kind: 'sequence', parts: [...header, token('<|message|>'), argumentsObject(parameters)] };
  });
  return { kind: 'sequence', parts: [...opening(), choiceOf(calls)] };
}

/** A message to the user whose content belongs to `text`. */
export function heldLanguage(text: GrammarSpec): GrammarSpec {
  return { kind: 'sequence', parts: [...opening(), literal('final'), token('<|message|>'), text] };
}

function opening(): GrammarSpec[] {
  return [token('<|start|>'), literal('assistant'), token('<|channel|>')];
}
