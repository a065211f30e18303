/** The text side of a chat format: how a model writes its reasoning and its tool calls. Types only. */

import type { GrammarSpec, JsonSchema } from '../grammar/api.ts';

export interface ToolDefinition {
  readonly name: string;
  readonly description?: string;
  /** Schema of the arguments object; missing = any object. */
  readonly parameters?: JsonSchema;
}

/** auto: the model decides; none: no call; required: at least one; a name: exactly that tool. */
export type ToolChoice = 'auto' | 'none' | 'required' | { readonly name: string };

/** What a stream of text turns into. Texts are never empty. */
export type ChatPiece =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'reasoning'; readonly text: string }
  /** A call begins; its arguments follow, JSON text when joined. `index` counts from 0 within the answer. */
  | { readonly type: 'call'; readonly index: number; readonly name: string }
  | { readonly type: 'arguments'; readonly index: number; readonly text: string };

/** Incremental: how the text is cut into pushes makes no difference to the joined pieces. */
export interface ChatParser {
  /** The text so far ends inside a block of reasoning. */
  readonly inReasoning: boolean;
  push(text: string): ChatPiece[];
  /**
   * The answer has ended; what was held back comes as it is, and an unfinished call by the rules of its syntax. `cut`: it did not
   * end by itself, so more arguments may be missing.
   */
  end(cut?: boolean): ChatPiece[];
}

export interface ParserOptions {
  readonly tools: readonly ToolDefinition[];
  readonly toolChoice: ToolChoice;
  /** The prompt ended inside an open reasoning block. */
  readonly startsInReasoning: boolean;
  /**
   * A constraint holds the answer to calls: their arguments are given while they come. Otherwise a call is given when it is whole,
   * because what turns out to be malformed is text.
   */
  readonly constrained?: boolean;
}

/** One row of the table of chat formats. */
export interface ChatFormat {
  readonly name: string;
  /** Tags around reasoning, or null when the model does not reason aloud. */
  readonly reasoning: { readonly open: string; readonly close: string } | null;
  /** true: the template takes `tools` and writes them in the model's own syntax; false: they are described in a system message. */
  readonly templateTakesTools: boolean;
  parser(options: ParserOptions): ChatParser;
  /** The language of an answer that calls: required (one or more; exactly one unless `parallel`) or a named tool (one). */
  forced(
    tools: readonly ToolDefinition[],
    choice: 'required' | { readonly name: string },
    parallel: boolean,
  ): GrammarSpec;
}
