/** The answer of POST /v1/completions, in the older of OpenAI's shapes: whole, or in chunks that look the same. */

import * as z from 'zod';
import type { TurnEvent, TurnLogprobs, TurnUsage } from '../turn.ts';
import type { ReplyHead } from './openai-chat-reply.ts';
import type { ChunkOptions } from './openai-chat-stream.ts';
import { Usage, usageOf } from './openai-fields.ts';

const Logprobs = z.object({
  tokens: z.array(z.string()),
  token_logprobs: z.array(z.number()),
  top_logprobs: z.array(z.record(z.string(), z.number())).describe('Of each token, itself included.'),
  text_offset: z.array(z.int()).describe('Where each token begins in text, in characters (code points).'),
});
type Logprobs = z.output<typeof Logprobs>;

const Choice = z.object({
  index: z.int().describe('Which of the prompts it continues.'),
  text: z.string(),
  logprobs: Logprobs.nullable(),
  finish_reason: z.enum(['stop', 'length']).nullable(),
});
type Choice = z.output<typeof Choice>;

export const CompletionReply = z
  .object({
    id: z.string(),
    object: z.literal('text_completion'),
    created: z.int().describe('Seconds since 1970.'),
    model: z.string(),
    system_fingerprint: z.string(),
    choices: z.array(Choice),
    usage: Usage.describe('Of all choices together.'),
  })
  .meta({ id: 'Completion' });
export type CompletionReply = z.output<typeof CompletionReply>;

export interface CompletionChunk extends ReplyHead {
  object: 'text_completion';
  choices: Choice[];
  usage?: Usage | null;
  /** Tokens of the prompt that are read; eta_ms: null until it can be told. */
  progress?: { done: number; total: number; eta_ms: number | null };
}

/** Turns events into chunks, one prompt after the other. */
export class CompletionStream {
  readonly #head: ReplyHead;
  readonly #options: ChunkOptions & { readonly logprobs: boolean };
  readonly #used: TurnUsage[] = [];
  /** Characters of the current choice so far. */
  #length = 0;

  constructor(head: ReplyHead, options: ChunkOptions & { readonly logprobs: boolean }) {
    this.#head = head;
    this.#options = options;
  }

  /** `index`: which of the prompts is being answered. */
  chunks(index: number, event: TurnEvent): CompletionChunk[] {
    switch (event.type) {
      case 'accepted':
        this.#length = 0;
        return [this.#text(index, '')];
      case 'progress': {
        const { done, total, etaMs } = event;
        return this.#options.progress ? [this.#chunk([], { progress: { done, total, eta_ms: etaMs } })] : [];
      }
      case 'text':
        return [this.#text(index, event.text, event.logprobs)];
      // the text is continued as it is: nothing in it is reasoning or a call
      case 'reasoning':
      case 'arguments':
        return [this.#text(index, event.text)];
      case 'call':
        return [];
      case 'end':
        this.#used.push(event.usage);
        return [
          this.#chunk([
            { ...this.#choice(index, '', []), finish_reason: event.finish === 'length' ? 'length' : 'stop' },
          ]),
        ];
    }
  }

  /** Behind the last choice. */
  end(): CompletionChunk[] {
    return this.#options.usage ? [this.#chunk([], { usage: this.usage })] : [];
  }

  get usage(): Usage {
    return usageOf(this.#used);
  }

  #text(index: number, text: string, logprobs: readonly TurnLogprobs[] = []): CompletionChunk {
    return this.#chunk([this.#choice(index, text, logprobs)]);
  }

  #choice(index: number, text: string, tokens: readonly TurnLogprobs[]): Choice {
    const logprobs = this.#options.logprobs ? legacyLogprobs(tokens, this.#length) : null;
    this.#length += [...text].length;
    return { index, text, logprobs, finish_reason: null };
  }

  #chunk(choices: Choice[], more: Pick<CompletionChunk, 'usage' | 'progress'> = {}): CompletionChunk {
    const usage = this.#options.usage ? { usage: null } : {};
    return { ...this.#head, object: 'text_completion', choices, ...usage, ...more };
  }
}

/** Chunks of one choice as the whole of it. */
export function joinChoices(chunks: readonly Choice[]): Choice {
  const last = chunks[chunks.length - 1];
  const parts = chunks.flatMap(({ logprobs }) => logprobs ?? []);
  const logprobs: Logprobs = {
    tokens: parts.flatMap(part => part.tokens),
    token_logprobs: parts.flatMap(part => part.token_logprobs),
    top_logprobs: parts.flatMap(part => part.top_logprobs),
    text_offset: parts.flatMap(part => part.text_offset),
  };
  return { ...last, text: chunks.map(chunk => chunk.text).join(''), logprobs: last.logprobs && logprobs };
}

function legacyLogprobs(tokens: readonly TurnLogprobs[], start: number): Logprobs {
  let offset = start;
  return {
    tokens: tokens.map(({ token }) => token),
    token_logprobs: tokens.map(({ logprob }) => logprob),
    top_logprobs: tokens.map(token => Object.fromEntries(likely(token).map(({ token, logprob }) => [token, logprob]))),
    text_offset: tokens.map(({ token }) => {
      const at = offset;
      offset += [...token].length;
      return at;
    }),
  };
}

/** Least likely first: of two tokens that look alike, the likelier one stays in the table. */
function likely(token: TurnLogprobs): readonly { token: string; logprob: number }[] {
  return [...token.top, token].sort((a, b) => a.logprob - b.logprob);
}
