/** Conversations to ids: template and guard together. */

import { RequestError, TokenizerError } from '../common/errors.ts';
import type { ChatTemplate } from './chat-template.ts';
import { FinalMessage } from './final-message.ts';
import { ControlStrings, Guard } from './guard.ts';
import { variants } from './message-variants.ts';
import type { Tokenizer } from './tokenizer.ts';

export interface RenderOptions {
  /** Open an assistant turn at the end; default true. */
  readonly addGenerationPrompt?: boolean;
  /**
   * The last message is an assistant's: the text ends where its content ends, so that a model goes on with it. No other turn is
   * opened.
   */
  readonly continueFinal?: boolean;
  /** Named template of a model that has several. */
  readonly template?: string;
  /** Further variables of the template (enable_thinking, ...). */
  readonly variables?: Readonly<Record<string, unknown>>;
  /** Milliseconds since 1970 that strftime_now shows; default: the clock. */
  readonly now?: number;
}

export interface Rendered {
  readonly ids: number[];
  readonly text: string;
}

/** Steps of the two short conversations that are rendered when a model opens; published templates need a few hundred. */
const MAX_PROBE_STEPS = 200_000;
/** A word that no template writes by itself. */
const PROBE = 'Colibriprobe';

export class ChatEncoder {
  readonly #tokenizer: Tokenizer;
  readonly #template: ChatTemplate | null;
  readonly #controls: ControlStrings;
  #probeProblem: string | null = null;

  constructor(tokenizer: Tokenizer, template: ChatTemplate | null, controlStrings: readonly string[]) {
    this.#tokenizer = tokenizer;
    this.#template = template;
    this.#controls = new ControlStrings(tokenizer, controlStrings);
  }

  /** What people should know of this model's template and markers. */
  get notes(): string[] {
    const alike = this.#controls
      .indistinguishable(this.#tokenizer)
      .map(marker => `the chat marker ${JSON.stringify(marker)} cannot be told from the same text written by a user`);
    const probe = this.#probeProblem === null ? [] : [this.#probeProblem];
    return [...(this.#template?.problems ?? []), ...probe, ...alike];
  }

  /**
   * Renders a conversation and encodes it so that no text of the request becomes a control token. Throws RequestError for messages
   * that the template refuses, and for one that cannot be continued.
   */
  render(messages: readonly unknown[], tools?: readonly unknown[] | null, options: RenderOptions = {}): Rendered {
    const { text, marks } = this.#renderCalls(messages, tools, options);
    const ids = marks
      ? this.#tokenizer.encodeMarked(text, marks)
      : this.#tokenizer.encode(text, { controlTokens: true });
    return { ids, text };
  }

  /**
   * Templates tell a message that only calls from one with an empty text, or cannot do without a text: then it is empty. And some
   * want the arguments of calls as a text: then it is JSON.
   */
  #renderCalls(
    messages: readonly unknown[],
    tools: readonly unknown[] | null | undefined,
    options: RenderOptions,
  ): { text: string; marks: Uint8Array | null } {
    let failure: unknown;
    for (const variant of variants(messages)) {
      try {
        return this.#render(variant, tools, options);
      } catch (error) {
        if (!(error instanceof TokenizerError) || error.code !== 'CHAT_TEMPLATE_FAILED') throw error;
        failure ??= error;
      }
    }
    throw failure;
  }

  #render(
    messages: readonly unknown[],
    tools: readonly unknown[] | null | undefined,
    options: RenderOptions,
    maxSteps?: number,
  ): { text: string; marks: Uint8Array | null } {
    const template = this.#template;
    if (!template) {
      throw new RequestError('NO_CHAT_TEMPLATE', 'this model has no chat template', {
        hint: 'it can only continue a text: use coli run --raw',
      });
    }
    const given = tools && tools.length > 0 ? tools : null;
    const literals = template.literals(given !== null, options.template);
    const guard = new Guard(this.#controls, literals, [messages, given, options.variables]);
    const end = options.continueFinal ? new FinalMessage(messages, guard.unusedCharacter()) : null;
    const masked = guard.maskMessages(messages);
    const variables = {
      ...this.#tokenizer.specialTokens,
      ...guard.mask(options.variables ?? {}),
      messages: end ? end.mark(masked) : masked,
      tools: guard.mask(given),
      documents: null,
      add_generation_prompt: end ? false : (options.addGenerationPrompt ?? true),
    };
    const hooks = {
      plain: (text: string) => guard.restore(text).text,
      pattern: (text: string) => guard.pattern(text),
      json: (text: string) => guard.json(text),
    };
    const now = new Date(options.now ?? Date.now());
    const rendered = template.render(variables, now, hooks, options.template, maxSteps);
    return guard.restore(end ? end.cut(rendered) : rendered);
  }

  /**
   * Id of the control token with which the template ends an assistant's turn, or null. Models end their answers with it, and
   * some publishers forget to list it as a stop token. Null too where a turn may have several parts (the model writes a
   * header of special tokens first, or more follows): there the same token also ends a part.
   */
  findEndOfTurn(): number | null {
    const user = { role: 'user', content: 'Hello' };
    let prompt: string;
    let turn: string;
    try {
      prompt = this.#render([user], null, {}, MAX_PROBE_STEPS).text;
      const answer = { role: 'assistant', content: PROBE };
      turn = this.#render([user, answer], null, { addGenerationPrompt: false }, MAX_PROBE_STEPS).text;
    } catch (error) {
      if (error instanceof TokenizerError && error.code === 'CHAT_TEMPLATE_LIMIT') {
        this.#probeProblem = `how the chat template ends a turn is unknown: ${error.message}`;
      }
      return null; // or a template that wants other conversations
    }
    const at = turn.lastIndexOf(PROBE);
    if (at < 0) return null;
    const header = turn.slice(commonPrefix(prompt, turn), at);
    const tokens = this.#tokenizer.controlTokens;
    if (tokens.some(token => token.special && header.includes(token.content))) return null;
    const end = turn.slice(at + PROBE.length).trim();
    return tokens.find(token => token.content === end)?.id ?? null;
  }
}

function commonPrefix(a: string, b: string): number {
  let length = 0;
  while (length < a.length && a[length] === b[length]) length++;
  return length;
}
