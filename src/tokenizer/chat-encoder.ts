/** Conversations to ids: template and guard together. */

import { RequestError } from '../common/errors.ts';
import type { ChatTemplate } from './chat-template.ts';
import { ControlStrings, Guard } from './guard.ts';
import type { Tokenizer } from './tokenizer.ts';

export interface RenderOptions {
  /** Open an assistant turn at the end; default true. */
  readonly addGenerationPrompt?: boolean;
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

/** A word that no template writes by itself. */
const PROBE = 'Colibriprobe';

export class ChatEncoder {
  readonly #tokenizer: Tokenizer;
  readonly #template: ChatTemplate | null;
  readonly #controls: ControlStrings;

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
    return [...(this.#template?.problems ?? []), ...alike];
  }

  /** Renders a conversation and encodes it so that no text of the request becomes a control token. */
  render(messages: readonly unknown[], tools?: readonly unknown[] | null, options: RenderOptions = {}): Rendered {
    const template = this.#template;
    if (!template) {
      throw new RequestError('NO_CHAT_TEMPLATE', 'this model has no chat template', {
        hint: 'it can only continue a text: use coli run --raw',
      });
    }
    const given = tools && tools.length > 0 ? tools : null;
    const literals = template.literals(given !== null, options.template);
    const guard = new Guard(this.#controls, literals, [messages, given, options.variables]);
    const variables = {
      ...this.#tokenizer.specialTokens,
      ...guard.mask(options.variables ?? {}),
      messages: guard.maskMessages(messages),
      tools: guard.mask(given),
      documents: null,
      add_generation_prompt: options.addGenerationPrompt ?? true,
    };
    const hooks = {
      plain: (text: string) => guard.restore(text).text,
      pattern: (text: string) => guard.pattern(text),
      json: (text: string) => guard.json(text),
    };
    const rendered = template.render(variables, new Date(options.now ?? Date.now()), hooks, options.template);
    const { text, marks } = guard.restore(rendered);
    const ids = marks
      ? this.#tokenizer.encodeMarked(text, marks)
      : this.#tokenizer.encode(text, { controlTokens: true });
    return { ids, text };
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
      prompt = this.render([user], null).text;
      turn = this.render([user, { role: 'assistant', content: PROBE }], null, { addGenerationPrompt: false }).text;
    } catch {
      return null; // a template that wants other conversations
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
