/** The answer of POST /v1/chat/completions in chunks. Absent fields are left out, because clients read null as a value. */

import type { TurnEvent, TurnLogprobs } from '../turn.ts';
import { type Logprobs, logprobsOf, type ReplyHead } from './openai-chat-reply.ts';
import { type Usage, usageOf } from './openai-fields.ts';

export interface ChunkOptions {
  /** Usage in a last chunk, null in all others. */
  readonly usage: boolean;
  readonly progress: boolean;
}

export interface ChunkCall {
  index: number;
  id?: string;
  type?: 'function';
  function: { name?: string; arguments: string };
}

export interface ChunkDelta {
  role?: 'assistant';
  content?: string;
  reasoning_content?: string;
  tool_calls?: ChunkCall[];
}

export interface ChunkChoice {
  index: number;
  delta: ChunkDelta;
  logprobs?: Logprobs;
  finish_reason: 'stop' | 'length' | 'tool_calls' | null;
}

export interface ChatChunk extends ReplyHead {
  object: 'chat.completion.chunk';
  choices: ChunkChoice[];
  usage?: Usage | null;
  /** Tokens of the prompt that are read; eta_ms: null until it can be told. */
  progress?: { done: number; total: number; eta_ms: number | null };
}

export class ChatStream {
  readonly #head: ReplyHead;
  readonly #options: ChunkOptions;

  constructor(head: ReplyHead, options: ChunkOptions) {
    this.#head = head;
    this.#options = options;
  }

  /** The chunks that an event becomes, in order. */
  chunks(event: TurnEvent): ChatChunk[] {
    switch (event.type) {
      case 'accepted':
        return [this.#delta({ role: 'assistant', content: '' })];
      case 'progress': {
        const { done, total, etaMs } = event;
        return this.#options.progress ? [this.#chunk([], { progress: { done, total, eta_ms: etaMs } })] : [];
      }
      case 'reasoning':
        return [this.#delta({ reasoning_content: event.text })];
      case 'text':
        return [this.#delta({ content: event.text }, event.logprobs)];
      case 'call': {
        const { index, id, name } = event;
        return [this.#delta({ tool_calls: [{ index, id, type: 'function', function: { name, arguments: '' } }] })];
      }
      case 'arguments':
        return [this.#delta({ tool_calls: [{ index: event.index, function: { arguments: event.text } }] })];
      case 'end': {
        const last = this.#chunk([{ index: 0, delta: {}, finish_reason: event.finish }]);
        return this.#options.usage ? [last, this.#chunk([], { usage: usageOf([event.usage]) })] : [last];
      }
    }
  }

  #delta(delta: ChunkDelta, logprobs?: readonly TurnLogprobs[]): ChatChunk {
    const told = logprobs?.length ? { logprobs: logprobsOf(logprobs) } : {};
    return this.#chunk([{ index: 0, delta, ...told, finish_reason: null }]);
  }

  #chunk(choices: ChunkChoice[], more: Pick<ChatChunk, 'usage' | 'progress'> = {}): ChatChunk {
    const usage = this.#options.usage ? { usage: null } : {};
    return { ...this.#head, object: 'chat.completion.chunk', choices, ...usage, ...more };
  }
}
