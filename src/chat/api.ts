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
  /** `marker`: one of the format's tokens that came behind the text. */
  push(text: string, marker?: string): ChatPiece[];
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
  /** What the prompt has written of the answer's first part: texts, each with the marker behind it. See ChatFormat.partMarker. */
  readonly begun?: readonly (readonly [text: string, marker?: string])[];
  /**
   * A constraint holds the answer to calls: their arguments are given while they come. Otherwise a call is given when it is whole,
   * because what turns out to be malformed is text.
   */
  readonly constrained?: boolean;
}

/** One row of the table of chat formats. */
export interface ChatFormat {
  readonly name: string;
  /** Tokens that the parser must be told of, also where the tokenizer calls them special, which makes them invisible. */
  readonly markers: readonly string[];
  /**
   * The marker with which each part of an answer begins. The prompt has written the first one, and perhaps more: the parser is
   * given what stands behind it before the answer comes. Null: answers begin where prompts end.
   */
  readonly partMarker: string | null;
  /** Tags around reasoning, or null when the model does not reason aloud. The closing one is a token. */
  readonly reasoning: { readonly open: string; readonly close: string } | null;
  /**
   * true: the template takes `tools` and writes them in the model's own syntax; false: they are described in a system message;
   * null: it takes none, and the model's answers have a form in which a described call would not be seen.
   */
  readonly templateTakesTools: boolean | null;
  /**
   * The template reads the reasoning of earlier messages from `thinking`, and has one place for it and the text of a message that
   * calls.
   */
  readonly readsThinking?: boolean;
  parser(options: ParserOptions): ChatParser;
  /** The language of an answer that calls: required (one or more; exactly one unless `parallel`) or a named tool (one). */
  forced(
    tools: readonly ToolDefinition[],
    choice: 'required' | { readonly name: string },
    parallel: boolean,
  ): GrammarSpec;
  /** The language of an answer without a call whose visible text belongs to `text`; behind the reasoning, if there is any. */
  held(text: GrammarSpec): GrammarSpec;
}

/** How a family's models are told to reason, or not to. */
export interface ThinkingSwitch {
  /** Variable of the template that is true or false; null: the template has no such switch. */
  readonly variable: 'enable_thinking' | 'thinking' | null;
  /** Efforts that clients ask for -> what the template calls them. Others are given as they are. */
  readonly efforts?: Readonly<Record<string, string>>;
  /** The effort of a request that wants no reasoning, where it cannot be turned off. */
  readonly leastEffort?: string;
}

/** What a family knows of its chats beyond what template and tokenizer of a checkpoint say. Plain data. */
export interface FamilyChat {
  /** Name of the usual format, for templates that show none. */
  readonly format?: string;
  /** Tokens that end an answer besides those of the config files. A tokenizer that lacks some has others. */
  readonly stopTokens: readonly string[];
  readonly thinking: ThinkingSwitch;
}
