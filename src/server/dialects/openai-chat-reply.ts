/** The answer of POST /v1/chat/completions in one piece. */

import * as z from 'zod';
import { InternalError } from '../../common/errors.ts';
import type { TurnEvent, TurnLogprobs } from '../turn.ts';
import { Usage, usageOf } from './openai-fields.ts';

const Likely = z.object({ token: z.string(), bytes: z.array(z.int()), logprob: z.number() });
const Logprobs = z.object({
  content: z.array(Likely.extend({ top_logprobs: z.array(Likely) })),
  refusal: z.null(),
});
export type Logprobs = z.output<typeof Logprobs>;

const FinishReason = z
  .enum(['stop', 'length', 'tool_calls'])
  .describe('stop: the model or a stop string ended it; length: max_tokens or the context did.');

const Call = z.object({
  id: z.string(),
  type: z.literal('function'),
  function: z.object({ name: z.string(), arguments: z.string().describe('A JSON object as text.') }),
});

export const ChatReply = z
  .object({
    id: z.string(),
    object: z.literal('chat.completion'),
    created: z.int().describe('Seconds since 1970.'),
    model: z.string(),
    system_fingerprint: z
      .string()
      .describe(
        'Names the model and the settings that change numbers: where it is equal, prompt and seed give equal bytes.',
      ),
    choices: z.array(
      z.object({
        index: z.int(),
        message: z.object({
          role: z.literal('assistant'),
          content: z.string().nullable().describe('null only beside tool_calls.'),
          refusal: z.null(),
          reasoning_content: z.string().optional().describe('What the model thought before it answered.'),
          tool_calls: z.array(Call).optional(),
        }),
        finish_reason: FinishReason,
        logprobs: Logprobs.nullable().describe('Of the tokens of content, when asked for.'),
      }),
    ),
    usage: Usage,
  })
  .meta({ id: 'ChatCompletion' });
export type ChatReply = z.output<typeof ChatReply>;

/** What all chunks of an answer have in common. */
export interface ReplyHead {
  readonly id: string;
  /** Seconds since 1970. */
  readonly created: number;
  readonly model: string;
  readonly system_fingerprint: string;
}

/** `withLogprobs`: they were asked for. Throws what the events throw. */
export async function collectChat(
  events: AsyncIterable<TurnEvent>,
  head: ReplyHead,
  withLogprobs: boolean,
): Promise<ChatReply> {
  let content = '';
  let reasoning = '';
  const calls: ChatReply['choices'][0]['message']['tool_calls'] = [];
  const tokens: TurnLogprobs[] = [];
  for await (const event of events) {
    if (event.type === 'text') {
      content += event.text;
      tokens.push(...(event.logprobs ?? []));
    } else if (event.type === 'reasoning') reasoning += event.text;
    else if (event.type === 'call') {
      calls[event.index] = { id: event.id, type: 'function', function: { name: event.name, arguments: '' } };
    } else if (event.type === 'arguments') calls[event.index].function.arguments += event.text;
    else if (event.type === 'end') {
      const message = {
        role: 'assistant' as const,
        content: content === '' && calls.length > 0 ? null : content,
        refusal: null,
        ...(reasoning !== '' && { reasoning_content: reasoning }),
        ...(calls.length > 0 && { tool_calls: calls }),
      };
      const logprobs = withLogprobs ? logprobsOf(tokens) : null;
      const choice = { index: 0, message, finish_reason: event.finish, logprobs };
      return { ...head, object: 'chat.completion', choices: [choice], usage: usageOf([event.usage]) };
    }
  }
  throw unfinished();
}

export function logprobsOf(tokens: readonly TurnLogprobs[]): Logprobs {
  const likely = ({ token, bytes, logprob }: Omit<TurnLogprobs, 'top'>) => ({ token, bytes: [...bytes], logprob });
  return { content: tokens.map(token => ({ ...likely(token), top_logprobs: token.top.map(likely) })), refusal: null };
}

export function unfinished(): InternalError {
  return new InternalError('TURN_WITHOUT_END', 'a turn ended without saying so');
}
