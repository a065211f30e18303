/** A history as chat templates expect it, put together from the finer pieces of other APIs. */

import type { TurnMessage } from '../turn.ts';

/** Between texts that an API keeps apart and a template takes as one. */
const SEPARATOR = '\n';

export interface HistoryCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: object;
}

export interface AssistantPiece {
  readonly text?: string;
  readonly reasoning?: string;
  readonly call?: HistoryCall;
}

type TextRole = 'system' | 'user' | 'assistant';

interface Draft {
  readonly role: TextRole | 'tool';
  readonly texts: string[];
  readonly reasoning: string[];
  readonly calls: HistoryCall[];
  /** Of a tool's result. */
  readonly answers?: HistoryCall;
}

/** Collects messages; pieces of one role that follow one another become one message. */
export class Conversation {
  readonly #drafts: Draft[] = [];
  readonly #calls = new Map<string, HistoryCall>();

  add(role: TextRole, text: string): void {
    this.#open(role).texts.push(text);
  }

  assistant({ text, reasoning, call }: AssistantPiece): void {
    const draft = this.#open('assistant');
    if (text !== undefined) draft.texts.push(text);
    if (reasoning !== undefined) draft.reasoning.push(reasoning);
    if (call !== undefined) {
      draft.calls.push(call);
      this.#calls.set(call.id, call);
    }
  }

  /** The result of a call. False: no call with this id came before. */
  result(id: string, text: string): boolean {
    const answers = this.#calls.get(id);
    if (answers === undefined) return false;
    this.#drafts.push({ role: 'tool', texts: [text], reasoning: [], calls: [], answers });
    return true;
  }

  get messages(): TurnMessage[] {
    return this.#drafts.map(finish);
  }

  #open(role: TextRole): Draft {
    const last = this.#drafts.at(-1);
    if (last?.role === role) return last;
    const draft: Draft = { role, texts: [], reasoning: [], calls: [] };
    this.#drafts.push(draft);
    return draft;
  }
}

function finish({ role, texts, reasoning, calls, answers }: Draft): TurnMessage {
  const content = texts.join(SEPARATOR);
  if (answers) return { role, content, tool_call_id: answers.id, name: answers.name };
  return {
    role,
    content: calls.length > 0 && texts.length === 0 ? null : content,
    ...(reasoning.length > 0 && { reasoning_content: reasoning.join(SEPARATOR) }),
    ...(calls.length > 0 && { tool_calls: calls.map(templateCall) }),
  };
}

function templateCall({ id, name, arguments: args }: HistoryCall) {
  return { id, type: 'function', function: { name, arguments: args } };
}
