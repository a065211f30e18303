/** How a model writes calls: what one row of the table of formats is made of. */

import { RequestError } from '../common/errors.ts';
import type { GrammarSpec } from '../grammar/api.ts';
import type { ToolDefinition } from './api.ts';
import type { CallDraft } from './draft.ts';
import type { Input, Reading } from './input.ts';

export interface CallSyntax {
  readonly name: string;
  /** See ChatFormat. */
  readonly templateTakesTools: boolean;
  /** Texts with which a call begins, wherever it stands. None: an answer is calls or text, as its beginning says. */
  readonly opens: readonly string[];
  /** Tags that are tokens in published tokenizers. */
  readonly markers: readonly string[];
  /**
   * Reads the call behind `open` (all calls of the answer when `opens` is empty) into the draft. False when it is none: then
   * what was read is text. A call that the text's end cuts counts as one only when nothing can be missing.
   */
  read(input: Input, draft: CallDraft, open: string): Reading<boolean>;
  /** The language of one call. Throws RequestError for a schema that cannot be kept in this syntax. */
  call(tool: ToolDefinition): GrammarSpec;
  /** The language of an answer: one call, or several. */
  answer(call: GrammarSpec, several: boolean): GrammarSpec;
}

/** A tool's name is at most this long; what is longer is none. */
export const MAX_NAME_LENGTH = 256;

/** One of several languages. */
export function choiceOf(options: readonly GrammarSpec[]): GrammarSpec {
  return options.length === 1 ? options[0] : { kind: 'choice', options };
}

/** What a choice of the client leaves of the tools for a required call, one or more. Throws RequestError UNKNOWN_TOOL. */
export function requiredTools(
  tools: readonly ToolDefinition[],
  choice: 'required' | { readonly name: string },
): readonly ToolDefinition[] {
  const allowed = choice === 'required' ? tools : tools.filter(({ name }) => name === choice.name);
  if (allowed.length > 0) return allowed;
  const what = choice === 'required' ? 'there are no tools' : `there is no tool ${JSON.stringify(choice.name)}`;
  throw new RequestError('UNKNOWN_TOOL', `a call is required, and ${what}`, {
    hint: 'declare the tool in tools',
    details: { parameter: 'tool_choice' },
  });
}
