/** An Anthropic message in one piece, put together from the events of its stream. */

import type { AnthropicDelta, AnthropicEvent } from './anthropic-events.ts';
import type { AnthropicBlock, AnthropicMessage } from './anthropic-schema.ts';
import { parsePartialObject } from './partial-json.ts';

export async function collectMessage(events: AsyncIterable<AnthropicEvent>): Promise<AnthropicMessage> {
  let message: AnthropicMessage | null = null;
  const blocks: { block: AnthropicBlock; json: string }[] = [];
  for await (const event of events) {
    if (event.type === 'message_start') message = event.message;
    else if (event.type === 'content_block_start') blocks.push({ block: { ...event.content_block }, json: '' });
    else if (event.type === 'content_block_delta') extend(blocks[event.index], event.delta);
    else if (event.type === 'message_delta') message = { ...message!, ...event.delta, usage: event.usage };
  }
  return { ...message!, content: blocks.map(finish) };
}

function extend(open: { block: AnthropicBlock; json: string }, delta: AnthropicDelta): void {
  const { block } = open;
  if (delta.type === 'input_json_delta') open.json += delta.partial_json;
  else if (block.type === 'text' && delta.type === 'text_delta') block.text += delta.text;
  else if (block.type === 'thinking' && delta.type === 'thinking_delta') block.thinking += delta.thinking;
  else if (block.type === 'thinking' && delta.type === 'signature_delta') block.signature = delta.signature;
}

function finish({ block, json }: { block: AnthropicBlock; json: string }): AnthropicBlock {
  return block.type === 'tool_use' ? { ...block, input: parsePartialObject(json) } : block;
}
