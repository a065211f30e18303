/** The body of POST /v1/chat/completions, and the turn it asks for. */

import * as z from 'zod';
import { checkSampling } from '../../engine/sampling-options.ts';
import type { ChatTurn, TurnRequest } from '../turn.ts';
import { badField, fieldName, parseBody, unsupported } from './openai-body.ts';
import { conversationOf, Message } from './openai-chat-messages.ts';
import { toolFields, toolsOf } from './openai-chat-tools.ts';
import {
  commonFields,
  flag,
  looseObject,
  maxTokensOf,
  outputLimits,
  sampling,
  samplingOf,
  text,
  withoutNulls,
} from './openai-fields.ts';
import { UNSUPPORTED, type UnsupportedFields } from './openai-unsupported.ts';

/** Each is rendered by the template; far beyond what a context holds. */
export const MAX_MESSAGES = 10_000;

const messagesMessage = `must be an array of 1 to ${MAX_MESSAGES} messages`;

export const ChatBody = z
  .looseObject({
    messages: z
      .array(Message, { error: messagesMessage })
      .min(1, messagesMessage)
      .max(MAX_MESSAGES, messagesMessage)
      .describe(
        'The conversation. Empty assistant messages at the end are dropped; one with text is continued, which needs a request without tools.',
      ),
    ...commonFields,
    ...outputLimits,
    ...toolFields,
    logprobs: flag().nullish().describe('Log-probabilities of the tokens of `content`.'),
    top_logprobs: sampling('logprobs', 'Also those of so many likeliest tokens; needs logprobs.'),
    reasoning_effort: z
      .enum(['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'], {
        error: 'must be "none", "minimal", "low", "medium", "high", "xhigh" or "max"',
      })
      .nullish()
      .describe('Given to templates that know it; "none" is enable_thinking: false.'),
    enable_thinking: flag()
      .nullish()
      .describe('Whether the model reasons first. Default: as its template does. An extension.'),
    add_generation_prompt: flag().nullish().describe('As vLLM has it; must agree with how messages end. An extension.'),
    continue_final_message: flag()
      .nullish()
      .describe('As vLLM has it; must agree with how messages end: an assistant message is continued. An extension.'),
    chat_template_kwargs: looseObject({
      enable_thinking: flag().nullish(),
      thinking: flag().nullish(),
      reasoning_effort: text().nullish(),
    })
      .nullish()
      .describe(
        'enable_thinking (or thinking) and reasoning_effort, as clients of vLLM send them; other variables are refused.',
      ),
  })
  .describe('A conversation to be answered.')
  .meta({ id: 'ChatCompletionRequest' });
export type ChatBody = z.output<typeof ChatBody>;

const CHAT_UNSUPPORTED: UnsupportedFields = {
  ...UNSUPPORTED,
  echo: { neutral: [false], hint: 'use /v1/completions' },
};

export function parseChat(body: unknown): ChatBody {
  return parseBody(ChatBody, body, CHAT_UNSUPPORTED);
}

/** Throws RequestErrors that name the field. `client`: whose turn it is in the queue. */
export function chatTurn(body: ChatBody, client: string): TurnRequest {
  const prompt = chatPromptTurn(body);
  if (body.top_logprobs != null && !body.logprobs)
    throw badField('top_logprobs', 'needs logprobs', 'set logprobs to true');
  const request = {
    prompt,
    client,
    ...samplingOf(body),
    ...withoutNulls({ maxTokens: maxTokensOf(body), logprobs: body.logprobs ? (body.top_logprobs ?? 0) : null }),
  };
  checkSampling(request);
  return request;
}

/** The prompt of a chat, which is also what /apply-template shows. Throws RequestErrors that name the field. */
export function chatPromptTurn(body: ChatBody): ChatTurn {
  const { messages, continueFinal } = conversationOf(body.messages);
  const prompt: ChatTurn = { kind: 'chat', messages, continueFinal, ...toolsOf(body), ...thinkingOf(body) };
  if (continueFinal && prompt.tools.length > 0) {
    const hint = 'leave tools out, or end with a user or tool message';
    throw badField(
      `messages[${messages.length - 1}]`,
      "is an assistant's and would be continued, which needs a request without tools",
      hint,
    );
  }
  checkEnding('add_generation_prompt', body.add_generation_prompt, !continueFinal);
  checkEnding('continue_final_message', body.continue_final_message, continueFinal);
  return prompt;
}

/** How messages end decides whether the last one is continued; a field may say the same, but not the contrary. */
function checkEnding(field: string, value: boolean | null | undefined, actual: boolean): void {
  if (value == null || value === actual) return;
  const what = `is ${value}, but a last message of an assistant is continued, and only such a one`;
  throw unsupported(field, 'leave it out', what);
}

/** Several fields say the same, and may not contradict each other. */
function thinkingOf(body: ChatBody): Pick<ChatTurn, 'thinking' | 'reasoningEffort'> {
  const { enable_thinking, thinking, reasoning_effort, ...others } = body.chat_template_kwargs ?? {};
  const other = Object.entries(others).find(([, value]) => value !== null);
  if (other)
    throw unsupported(
      fieldName(['chat_template_kwargs', other[0]]),
      'the template gets enable_thinking and reasoning_effort only',
    );
  const effort = agreed([
    ['reasoning_effort', body.reasoning_effort],
    ['chat_template_kwargs.reasoning_effort', reasoning_effort],
  ]);
  const wanted = agreed([
    ['enable_thinking', body.enable_thinking],
    ['chat_template_kwargs.enable_thinking', enable_thinking],
    ['chat_template_kwargs.thinking', thinking],
    ['reasoning_effort', effort === 'none' ? false : null],
  ]);
  return { thinking: wanted, reasoningEffort: effort === 'none' ? null : effort };
}

function agreed<T>(fields: readonly (readonly [string, T | null | undefined])[]): T | null {
  const given = fields.filter(([, value]) => value != null);
  const other = given.find(([, value]) => value !== given[0][1]);
  if (other) throw badField(other[0], `contradicts ${given[0][0]}`, 'give one of them');
  return given[0]?.[1] ?? null;
}
