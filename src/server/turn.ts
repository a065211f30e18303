/**
 * What the server asks of the engine and what comes back, whichever API the client speaks: one request, one stream of events. The
 * dialects (dialects/*.ts) translate from and to it.
 */

import type { ToolChoice, ToolDefinition } from '../chat/api.ts';
import type { ChatMessage, EffectiveSampling, SamplingOptions, TokenLogprobs } from '../engine/api.ts';
import type { GrammarSpec } from '../grammar/api.ts';

/**
 * A conversation as chat templates expect it: content is text, null only beside tool_calls; roles system, user, assistant, tool.
 * `reasoning_content`, `tool_calls` ({id, type, function: {name, arguments: object}}) and `tool_call_id` as templates know them.
 */
export type TurnMessage = ChatMessage;

export interface ChatTurn {
  readonly kind: 'chat';
  readonly messages: readonly TurnMessage[];
  readonly tools: readonly ToolDefinition[];
  readonly toolChoice: ToolChoice;
  readonly parallelToolCalls: boolean;
  /** null = what the template does by itself. */
  readonly thinking: boolean | null;
  /** Passed to templates that know it. */
  readonly reasoningEffort: string | null;
  /** The last message is the assistant's, and the answer goes on where it ends. Only without tools. */
  readonly continueFinal: boolean;
}

export interface TextTurn {
  readonly kind: 'text';
  readonly prompt: string | readonly number[];
  /** The answer begins with the prompt's text. */
  readonly echo: boolean;
}

export interface TurnRequest extends SamplingOptions {
  readonly prompt: ChatTurn | TextTurn;
  /** Missing: the rest of the context. */
  readonly maxTokens?: number;
  readonly stop?: readonly string[];
  /** What the answer must look like; after the reasoning, if there is any. */
  readonly format?: GrammarSpec;
  /** The field that asked for it: errors about the form name it. */
  readonly formatField?: string;
  /** Whose turn it is in the queue: requests of one client do not push aside those of others. */
  readonly client: string;
}

export interface TurnUsage {
  promptTokens: number;
  /** Of the prompt's tokens, those whose keys and values were still there. */
  cachedTokens: number;
  completionTokens: number;
  reasoningTokens: number;
}

export type TurnFinish = 'stop' | 'length' | 'tool_calls';

/** A token of the answer with its log-probabilities; `bytes` of each, because a token need not be whole characters. */
export interface TurnLogprobs {
  readonly token: string;
  readonly bytes: readonly number[];
  readonly logprob: number;
  readonly top: readonly { readonly token: string; readonly bytes: readonly number[]; readonly logprob: number }[];
}

/**
 * `accepted` comes first and exactly once: everything about the request has been checked, the prompt fits, a place is free. Only
 * what goes wrong before it may be answered with a status. `end` comes last, unless the stream throws.
 */
export type TurnEvent =
  | {
      readonly type: 'accepted';
      readonly promptTokens: number;
      /** The sampler's settings in force, for APIs that report them. */
      readonly sampling?: EffectiveSampling;
    }
  /** Tokens of the prompt that are computed. etaMs: null until it can be told. */
  | { readonly type: 'progress'; readonly done: number; readonly total: number; readonly etaMs: number | null }
  | { readonly type: 'reasoning'; readonly text: string; readonly logprobs?: readonly TurnLogprobs[] }
  | { readonly type: 'text'; readonly text: string; readonly logprobs?: readonly TurnLogprobs[] }
  /** index counts from 0; id is unique; arguments follow as text of a JSON object. */
  | { readonly type: 'call'; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: 'arguments'; readonly index: number; readonly text: string }
  | {
      readonly type: 'end';
      readonly finish: TurnFinish;
      /** The stop string that ended it, if one did. */
      readonly stopSequence: string | null;
      readonly usage: TurnUsage;
    };

export type { TokenLogprobs };

/** Runs turns. Throws ColiErrors: RequestError for what the client can change, QUEUE_FULL and QUEUE_TIMEOUT for what may pass. */
export interface TurnRunner {
  /** `fp_` and a hash of the model and the settings that change numbers: with equal ones, prompt and seed give the same bytes. */
  readonly fingerprint: string;
  run(request: TurnRequest, signal: AbortSignal): AsyncIterable<TurnEvent>;
  /**
   * Throws what `run` would throw before `accepted`, the queue apart; takes no place and computes nothing. For requests that come
   * several at a time and are to run only if all of them can.
   */
  check(request: TurnRequest, signal: AbortSignal): Promise<void>;
  /** Tokens of the prompt of a chat, without running it. */
  countTokens(turn: ChatTurn): Promise<number>;
  /** The text of that prompt, as it is encoded. */
  promptText(turn: ChatTurn): Promise<string>;
}

/** Who may run when: at most `slots` requests at a time, one client after the other. */
export interface Admission {
  /**
   * Joins the queue. Throws QUEUE_FULL or SERVER_STOPPING at once. The place must be left, also when it was never granted.
   * A request that is not ready yet counts against the limit of the queue, but takes no place until it says so.
   */
  enter(client: string, signal: AbortSignal, isReady?: boolean): Place;
}

export interface Place {
  /** Rejects with QUEUE_TIMEOUT, SERVER_STOPPING, or the signal's reason. */
  readonly granted: Promise<void>;
  /** The request has been checked and could run now. */
  ready(): void;
  /** The request has ended or gives up; more than once is no mistake. */
  leave(): void;
}
