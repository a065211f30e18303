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
        hint: 'use the raw prompt form (coli run --raw, /v1/completions)',
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
   * Id of the control token that the template puts right after an assistant's last turn, or null: models end their
   * answers with it, and some publishers forget to list it as a stop token.
   */
  findEndOfTurn(): number | null {
    const messages = [
      { role: 'user', content: 'Hello' },
      { role: 'assistant', content: PROBE },
    ];
    let text: string;
    try {
      text = this.render(messages, null, { addGenerationPrompt: false }).text;
    } catch {
      return null; // a template that wants other conversations; generation_config has to name the stop tokens
    }
    const at = text.lastIndexOf(PROBE);
    const rest = at < 0 ? '' : text.slice(at + PROBE.length).trimStart();
    const following = this.#tokenizer.controlTokens
      .filter(token => rest.startsWith(token.content))
      .sort((a, b) => b.content.length - a.content.length)[0];
    return following?.id ?? null;
  }
}
