/** Items of the Responses API as messages that chat templates know. */

import { shown } from '../../common/shown.ts';
import type { TurnMessage } from '../turn.ts';
import { Conversation } from './conversation.ts';
import { badField } from './openai-body.ts';
import { argumentsOf } from './openai-chat-messages.ts';
import { readableReasoning } from './responses-reasoning.ts';
import type { ResponsesBody, ResponsesItem, ResponsesText } from './responses-schema.ts';

/** Throws BAD_PARAMETER for arguments that are no object, outputs of calls that are not there, and calls at the end. */
export function readInput({ input, instructions }: ResponsesBody): TurnMessage[] {
  const conversation = new Conversation();
  if (instructions) conversation.add('system', instructions);
  if (typeof input === 'string') conversation.add('user', input);
  else for (const [index, item] of input.entries()) addItem(conversation, item, `input[${index}]`);
  const { messages } = conversation;
  if (messages.at(-1)?.['tool_calls'] !== undefined) {
    throw badField(
      `input[${input.length - 1}]`,
      'ends a turn that calls tools',
      'add a function_call_output for each call',
    );
  }
  return messages;
}

const SEND_CALL = 'send the function_call before it';

function addItem(to: Conversation, item: ResponsesItem, path: string): void {
  switch (item.type) {
    case 'function_call': {
      const args = argumentsOf(item.arguments, `${path}.arguments`);
      to.assistant({ call: { id: item.call_id, name: item.name, arguments: args } });
      break;
    }
    case 'function_call_output':
      if (!to.result(item.call_id, joinText(item.output))) {
        throw badField(
          `${path}.call_id`,
          `is ${shown(item.call_id)}, but no function_call before it has this id`,
          SEND_CALL,
        );
      }
      break;
    case 'reasoning': {
      const reasoning = readableReasoning(item);
      if (reasoning !== '') to.assistant({ reasoning });
      break;
    }
    default:
      to.add(item.role === 'developer' ? 'system' : item.role, joinText(item.content));
  }
}

function joinText(content: ResponsesText): string {
  if (typeof content === 'string') return content;
  return content.map(part => (part.type === 'refusal' ? part.refusal : part.text)).join('');
}
