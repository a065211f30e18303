/** Names that other APIs have for what is there under another one: refused with the name that is right on the route. */

import { expect, test } from 'vitest';
import type { RequestError } from '../../common/errors.ts';
import { ANTHROPIC_UNSUPPORTED, COUNT_UNSUPPORTED } from './anthropic-request.ts';
import { AnthropicMessageBody, AnthropicPromptBody } from './anthropic-schema.ts';
import { parseBody } from './openai-body.ts';
import { parseChat } from './openai-chat-request.ts';
import { parseCompletion } from './openai-completions-request.ts';
import { RESPONSES_UNSUPPORTED } from './responses-request.ts';
import { ResponsesBody } from './responses-schema.ts';

const messages = [{ role: 'user', content: 'Hi' }];
const chat = (body: object) => parseChat({ messages, ...body });
const completion = (body: object) => parseCompletion({ prompt: 'Hi', ...body });
const responses = (body: object) => parseBody(ResponsesBody, { input: 'Hi', ...body }, RESPONSES_UNSUPPORTED);
const claude = (body: object) =>
  parseBody(AnthropicMessageBody, { max_tokens: 1, messages, ...body }, ANTHROPIC_UNSUPPORTED);

function refusal(parse: (body: object) => unknown, body: object): string {
  try {
    parse(body);
  } catch (error) {
    const { code, hint, details } = error as RequestError;
    return `${code} ${details.parameter}: ${hint}`;
  }
  return 'taken';
}

test.each([
  [chat, { stop_sequences: ['a'] }, 'use stop'],
  [chat, { max_output_tokens: 5 }, 'use max_tokens'],
  [chat, { num_predict: 5 }, 'use max_tokens'],
  [chat, { system: 'Be brief' }, 'begin messages with one of the role system'],
  [chat, { response_schema: {} }, 'use response_format, grammar or regex'],
  [chat, { format: 'json' }, 'use response_format, grammar or regex'],
  [chat, { options: { seed: 1 } }, 'put its values into fields of the body'],
  [chat, { samplers: ['top_k'] }, 'their order is fixed; leave it out'],
  [chat, { input: 'Hi' }, 'use messages'],
  [completion, { stop_sequences: ['a'] }, 'use stop'],
  [completion, { input: 'Hi' }, 'use prompt'],
  [completion, { think: true }, 'use /v1/chat/completions'],
  [responses, { num_predict: 5 }, 'use max_output_tokens'],
  [responses, { system: 'Be brief' }, 'use instructions'],
  [responses, { guided_json: {} }, 'use text.format, grammar or regex'],
  [responses, { think: true }, 'use reasoning.effort'],
  [claude, { max_output_tokens: 5 }, 'use max_tokens'],
  [claude, { stop_token_ids: [5] }, 'use stop_sequences'],
  [claude, { instructions: 'Be brief' }, 'use system'],
  [claude, { guided_json: {} }, 'use output_config.format'],
])('%o %o', (parse, body, hint) => {
  expect(refusal(parse, body)).toBe(`UNSUPPORTED_PARAMETER ${Object.keys(body)[0]}: ${hint}`);
});

test('what asks for nothing is taken, and so is what changes nothing', () => {
  const neutral = { stop_sequences: [], format: '', options: {}, skip_special_tokens: true, system: null };
  const harmless = { keep_alive: '5m', cache_prompt: true, metadata: {}, priority: 1, id_slot: 0 };
  for (const parse of [chat, completion, responses, claude]) {
    expect(refusal(parse, { ...neutral, ...harmless })).toBe('taken');
  }
});

test('a route takes its own names, and counting those of the message that it counts', () => {
  expect(refusal(responses, { max_output_tokens: 5, instructions: 'x' })).toBe('taken');
  expect(refusal(claude, { stop_sequences: ['a'], system: 'x', thinking: { type: 'disabled' } })).toBe('taken');
  const count = (body: object) => parseBody(AnthropicPromptBody, { messages, ...body }, COUNT_UNSUPPORTED);
  expect(refusal(count, { stop_sequences: ['a'], max_tokens: 5 })).toBe('taken');
});
