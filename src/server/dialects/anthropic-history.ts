/** Anthropic's messages, which are lists of blocks, as messages that chat templates know. */

import { shown } from '../../common/shown.ts';
import type { TurnMessage } from '../turn.ts';
import type { AnthropicContentBlock, AnthropicPromptBody } from './anthropic-schema.ts';
import { Conversation } from './conversation.ts';
import { badField } from './openai-body.ts';

export interface AnthropicHistory {
  readonly messages: TurnMessage[];
  /** The last message is the assistant's: the answer continues it. */
  readonly continueFinal: boolean;
}

/** Throws BAD_PARAMETER for blocks in messages of the wrong role, and results of calls that are not there. */
export function readHistory({ messages, system }: AnthropicPromptBody): AnthropicHistory {
  const conversation = new Conversation();
  if (system != null && system.length > 0) conversation.add('system', joinText(system));
  for (const [index, { role, content }] of withoutEmptyEnd(messages).entries()) {
    const path = `messages[${index}].content`;
    if (typeof content === 'string') conversation.add(role, content);
    else for (const [at, block] of content.entries()) addBlock(conversation, role, block, `${path}[${at}]`);
  }
  const read = conversation.messages;
  const last = read.at(-1);
  if (last === undefined) throw badField('messages', 'must have a message to answer');
  const continueFinal = last.role === 'assistant';
  if (continueFinal) checkEnd(last, `messages[${messages.length - 1}]`);
  return { messages: read, continueFinal };
}

type Role = 'user' | 'assistant' | 'system';

function addBlock(to: Conversation, role: Role, block: AnthropicContentBlock, path: string): void {
  const only = (who: Role) => {
    if (role !== who) throw badField(`${path}.type`, `cannot be ${shown(block.type)} in a message of the ${role}`);
  };
  switch (block.type) {
    case 'text':
      to.add(role, block.text);
      break;
    case 'thinking':
      only('assistant');
      to.assistant({ reasoning: block.thinking });
      break;
    case 'redacted_thinking':
      only('assistant');
      break;
    case 'tool_use':
      only('assistant');
      to.assistant({ call: { id: block.id, name: block.name, arguments: block.input } });
      break;
    case 'tool_result': {
      only('user');
      const text = joinText(block.content ?? '');
      if (!to.result(block.tool_use_id, block.is_error ? `Error: ${text}` : text)) {
        const what = `is ${shown(block.tool_use_id)}, but no tool_use block before it has this id`;
        throw badField(`${path}.tool_use_id`, what, 'send the message with the tool_use block before it');
      }
    }
  }
}

/** An empty assistant message at the end is how some clients ask for a plain answer. */
function withoutEmptyEnd(messages: AnthropicPromptBody['messages']): AnthropicPromptBody['messages'] {
  const last = messages[messages.length - 1];
  return last.role === 'assistant' && last.content.length === 0 ? messages.slice(0, -1) : messages;
}

function checkEnd(last: TurnMessage, path: string): void {
  if (last['tool_calls'] !== undefined) {
    throw badField(path, 'calls tools, and an answer cannot go on behind that', 'send the result of each call');
  }
  if (!last.content) throw badField(path, 'has no text that an answer could continue', 'leave it out');
}

function joinText(content: NonNullable<AnthropicPromptBody['system']>): string {
  return typeof content === 'string' ? content : content.map(({ text }) => text).join('\n');
}
