/** Events of a turn as the named events of an Anthropic stream. An answer in one piece is built from the same events. */

import { InternalError } from '../../common/errors.ts';
import type { TurnEvent, TurnFinish, TurnUsage } from '../turn.ts';
import type { AnthropicBlock, AnthropicMessage, AnthropicUsage } from './anthropic-schema.ts';
import { unfinished } from './openai-chat-reply.ts';

export type AnthropicDelta =
  | { readonly type: 'thinking_delta'; readonly thinking: string }
  | { readonly type: 'signature_delta'; readonly signature: string }
  | { readonly type: 'text_delta'; readonly text: string }
  | { readonly type: 'input_json_delta'; readonly partial_json: string };

export type AnthropicEvent =
  | { readonly type: 'message_start'; readonly message: AnthropicMessage }
  | { readonly type: 'ping' }
  | { readonly type: 'content_block_start'; readonly index: number; readonly content_block: AnthropicBlock }
  | { readonly type: 'content_block_delta'; readonly index: number; readonly delta: AnthropicDelta }
  | { readonly type: 'content_block_stop'; readonly index: number }
  | {
      readonly type: 'message_delta';
      readonly delta: Pick<AnthropicMessage, 'stop_reason' | 'stop_sequence'>;
      readonly usage: AnthropicUsage;
    }
  | { readonly type: 'message_stop' };

export interface AnthropicOptions {
  readonly id: string;
  readonly model: string;
  /** Thinking blocks come without their text. */
  readonly hideThinking: boolean;
}

/** Clients send it back with the thinking; here nothing has to be proved by it. */
export const SIGNATURE = 'unsigned';

const STOP_REASONS = { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use' } as const satisfies Record<
  TurnFinish,
  AnthropicMessage['stop_reason']
>;

/** The stream of one message. */
export async function* messageEvents(
  turn: AsyncIterable<TurnEvent>,
  options: AnthropicOptions,
): AsyncGenerator<AnthropicEvent, void, undefined> {
  const blocks = new Blocks();
  for await (const event of turn) {
    switch (event.type) {
      case 'accepted':
        yield messageStart(options, event.promptTokens);
        yield { type: 'ping' };
        break;
      case 'progress':
        yield { type: 'ping' };
        break;
      case 'reasoning':
        yield* blocks.open('thinking', { type: 'thinking', thinking: '', signature: '' });
        if (!options.hideThinking) yield blocks.delta({ type: 'thinking_delta', thinking: event.text });
        break;
      case 'text':
        yield* blocks.open('text', { type: 'text', text: '', citations: null });
        yield blocks.delta({ type: 'text_delta', text: event.text });
        break;
      case 'call':
        yield* blocks.open(`call ${event.index}`, { type: 'tool_use', id: event.id, name: event.name, input: {} });
        break;
      case 'arguments':
        blocks.expect(`call ${event.index}`);
        yield blocks.delta({ type: 'input_json_delta', partial_json: event.text });
        break;
      case 'end':
        yield* blocks.close();
        yield messageDelta(event);
        yield { type: 'message_stop' };
        return;
    }
  }
  throw unfinished();
}

/** One block is open at a time; `key` tells which. */
class Blocks {
  #index = -1;
  #key: string | null = null;

  *open(key: string, block: AnthropicBlock): Generator<AnthropicEvent> {
    if (this.#key === key) return;
    yield* this.close();
    this.#key = key;
    yield { type: 'content_block_start', index: ++this.#index, content_block: block };
  }

  delta(delta: AnthropicDelta): AnthropicEvent {
    return { type: 'content_block_delta', index: this.#index, delta };
  }

  *close(): Generator<AnthropicEvent> {
    if (this.#key === null) return;
    if (this.#key === 'thinking') yield this.delta({ type: 'signature_delta', signature: SIGNATURE });
    this.#key = null;
    yield { type: 'content_block_stop', index: this.#index };
  }

  expect(key: string): void {
    if (this.#key !== key) throw new InternalError('TURN_ORDER', `arguments of ${key} while ${this.#key} is open`);
  }
}

function messageStart({ id, model }: AnthropicOptions, promptTokens: number): AnthropicEvent {
  // how much of the prompt was cached is told at the end
  const usage = { promptTokens, cachedTokens: 0, completionTokens: 0, reasoningTokens: 0 };
  return {
    type: 'message_start',
    message: {
      id,
      type: 'message',
      role: 'assistant',
      model,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: anthropicUsage(usage),
    },
  };
}

function messageDelta({ finish, stopSequence, usage }: Extract<TurnEvent, { type: 'end' }>): AnthropicEvent {
  const stopped = finish === 'stop' && stopSequence !== null;
  return {
    type: 'message_delta',
    delta: {
      stop_reason: stopped ? 'stop_sequence' : STOP_REASONS[finish],
      stop_sequence: stopped ? stopSequence : null,
    },
    usage: anthropicUsage(usage),
  };
}

function anthropicUsage(usage: TurnUsage): AnthropicUsage {
  return {
    input_tokens: usage.promptTokens - usage.cachedTokens,
    cache_read_input_tokens: usage.cachedTokens,
    cache_creation_input_tokens: 0,
    output_tokens: usage.completionTokens,
    output_tokens_details: { thinking_tokens: usage.reasoningTokens },
  };
}
