/** Messages of the chat API as chat templates expect them. */

import * as z from 'zod';
import { shown } from '../../common/shown.ts';
import type { TurnMessage } from '../turn.ts';
import { badField, refusal, unsupported } from './openai-body.ts';
import { looseObject, oneOf, text, withoutNulls } from './openai-fields.ts';

/** Of one message. */
const MAX_PARTS = 1024;
const MAX_CALLS = 512;

const contentMessage = 'must be a string or an array of parts';
const callsMessage = `must be an array of at most ${MAX_CALLS} calls`;
const partsMessage = `must have at most ${MAX_PARTS} parts`;
const Part = looseObject({
  type: text().describe('"text" (or "refusal" of an assistant): images, audio and files are refused.'),
  text: text().nullish(),
  refusal: text().nullish(),
});
const Content = z.union([z.string(), z.array(Part).max(MAX_PARTS, partsMessage)], { error: contentMessage });
const name = text().nullish().describe('Given to the template.');

const Call = looseObject({
  id: text(),
  type: z.literal('function', { error: 'must be "function"' }).nullish(),
  function: looseObject({ name: text(), arguments: text().describe('A JSON object as text; empty = no arguments.') }),
});

export const Message = z
  .discriminatedUnion(
    'role',
    [
      looseObject({ role: z.enum(['system', 'developer']), content: Content, name }),
      looseObject({ role: z.literal('user'), content: Content, name }),
      looseObject({
        role: z.literal('assistant'),
        content: Content.nullish(),
        reasoning_content: text()
          .nullish()
          .describe('Reasoning of that turn, as it was answered; `reasoning` is the same.'),
        reasoning: text().nullish(),
        refusal: text().nullish(),
        tool_calls: z.array(Call, { error: callsMessage }).max(MAX_CALLS, callsMessage).nullish(),
        name,
      }),
      looseObject({ role: z.literal('tool'), content: Content, tool_call_id: text(), name }),
    ],
    { error: oneOf('"system", "developer", "user", "assistant" or "tool"') },
  )
  .meta({ id: 'ChatMessage' });
type Message = z.output<typeof Message>;
type Assistant = Extract<Message, { role: 'assistant' }>;

export interface Conversation {
  readonly messages: TurnMessage[];
  /** The last message is an assistant's, to be continued. */
  readonly continueFinal: boolean;
}

/**
 * A developer is a system message; parts are joined; arguments of calls become objects; a tool's result must follow its call and
 * gets its name. Empty assistant messages at the end, left there by a turn that failed, are dropped. Throws RequestErrors naming the field.
 */
export function conversationOf(messages: readonly Message[]): Conversation {
  const kept = messages.slice(0, messages.findLastIndex(message => !isEmptyAnswer(message)) + 1);
  if (kept.length === 0) throw badField('messages', 'must have a message to answer', 'give at least one user message');
  const names = new Map<string, string>();
  const translated = kept.map((message, index) => translate(message, `messages[${index}]`, names));
  const last = kept[kept.length - 1];
  if (last.role === 'assistant' && last.tool_calls?.length) {
    throw badField(`messages[${kept.length - 1}]`, 'calls tools', 'add a tool message with the result of each call');
  }
  return { messages: translated, continueFinal: last.role === 'assistant' };
}

function isEmptyAnswer(message: Message): boolean {
  if (message.role !== 'assistant' || message.tool_calls?.length) return false;
  const { content, refusal } = message;
  return (
    !refusal &&
    (content == null || content === '' || (Array.isArray(content) && content.every(part => part.text === '')))
  );
}

function translate(message: Message, at: string, names: Map<string, string>): TurnMessage {
  switch (message.role) {
    case 'system':
    case 'developer':
      return { role: 'system', content: textOf(message.content, at), ...withoutNulls({ name: message.name }) };
    case 'user':
      return { role: 'user', content: textOf(message.content, at), ...withoutNulls({ name: message.name }) };
    case 'tool': {
      const { tool_call_id } = message;
      if (!names.has(tool_call_id)) {
        const what = `is ${shown(tool_call_id)}, but no call before it has this id`;
        throw badField(`${at}.tool_call_id`, what, 'send the assistant message with the call before it');
      }
      const name = message.name ?? names.get(tool_call_id);
      return { role: 'tool', content: textOf(message.content, at), tool_call_id, ...withoutNulls({ name }) };
    }
    case 'assistant':
      return assistant(message, at, names);
  }
}

function assistant(message: Assistant, at: string, names: Map<string, string>): TurnMessage {
  for (const field of ['audio', 'function_call']) {
    if (message[field] != null) throw unsupported(`${at}.${field}`, 'give content and tool_calls');
  }
  const calls = (message.tool_calls ?? []).map((call, index) => {
    names.set(call.id, call.function.name);
    const args = argumentsOf(call.function.arguments, `${at}.tool_calls[${index}].function.arguments`);
    return { id: call.id, type: 'function', function: { name: call.function.name, arguments: args } };
  });
  const content = message.content ?? message.refusal ?? null;
  return {
    role: 'assistant',
    content: content !== null ? textOf(content, at) : calls.length > 0 ? null : '',
    ...withoutNulls({ reasoning_content: message.reasoning_content ?? message.reasoning, name: message.name }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}

/** Arguments of a call in a history; `field` is where they stand. */
export function argumentsOf(json: string, field: string): object {
  if (json.trim() === '') return {};
  const hint = 'send the text of a JSON object';
  let isText = true;
  let value: unknown;
  try {
    value = JSON.parse(json, (key, item) => {
      isText &&= isProper(key) && (typeof item !== 'string' || isProper(item));
      return item;
    });
  } catch {
    throw badField(field, 'is not valid JSON', hint);
  }
  if (!isText) throw badField(field, 'holds NUL or half of a surrogate pair', hint);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw badField(field, `must be the text of a JSON object, not of ${shown(value)}`);
  }
  return value;
}

/** JSON inside a string can write what no text holds; outside, it has been looked for already. */
const isProper = (text: string) => text.isWellFormed() && !text.includes('\0');

function textOf(content: z.output<typeof Content>, at: string): string {
  if (typeof content === 'string') return content;
  return content.map((part, index) => partText(part, `${at}.content[${index}]`)).join('');
}

function partText(part: z.output<typeof Part>, at: string): string {
  if (part.type !== 'text' && part.type !== 'refusal') {
    const hint = 'send parts of type "text"';
    throw refusal(
      'UNSUPPORTED_CONTENT_TYPE',
      at,
      `${at} has type ${shown(part.type)}, and this model reads text only`,
      hint,
    );
  }
  const text = part[part.type];
  if (text == null) throw badField(`${at}.${part.type}`, 'is missing: it must be a string');
  return text;
}
