/** Bodies of the Anthropic Messages API: what is read of a request, and the shape of an answer. Other fields are let pass. */

import * as z from 'zod';
import { MAX_STOP_LENGTH, MAX_STOP_STRINGS } from '../../engine/stops.ts';
import { MAX_TOOLS, TOOL_NAME } from './openai-chat-tools.ts';
import { anyObject, commonFields, flag, looseObject, oneOf, text } from './openai-fields.ts';

/** Each is rendered by the template; far beyond what a context holds. */
const MAX_MESSAGES = 10_000;

/** Prompt caching here is automatic, so these marks change nothing. */
const cacheControl = z.unknown().optional().describe('Accepted: beginnings of prompts are cached without it.');

const TextBlock = looseObject({ type: z.literal('text'), text: text(), cache_control: cacheControl });

const ThinkingBlock = looseObject({
  type: z.literal('thinking'),
  thinking: text(),
  signature: text().nullish().describe('Not checked.'),
});

const RedactedThinkingBlock = looseObject({ type: z.literal('redacted_thinking'), data: text() }).describe(
  'Cannot be read by this model: no part of the prompt.',
);

const ToolUseBlock = looseObject({
  type: z.literal('tool_use'),
  id: named(),
  name: named(),
  input: anyObject(),
});

/** A non-empty name or id. */
function named() {
  return text().min(1, 'must not be empty');
}

const TextOrBlocks = z.union([text(), z.array(z.discriminatedUnion('type', [TextBlock], { error: oneOf('"text"') }))], {
  error: 'must be a string or an array of text blocks',
});

const ToolResultBlock = looseObject({
  type: z.literal('tool_result'),
  tool_use_id: named(),
  content: TextOrBlocks.nullish(),
  is_error: flag().nullish().describe('The model reads such a result behind "Error: ".'),
});

const ContentBlock = z
  .discriminatedUnion('type', [TextBlock, ThinkingBlock, RedactedThinkingBlock, ToolUseBlock, ToolResultBlock], {
    error: oneOf('"text", "thinking", "redacted_thinking", "tool_use" or "tool_result"'),
  })
  .meta({ id: 'InputBlock' });

const Message = looseObject({
  role: z.enum(['user', 'assistant', 'system'], { error: 'must be "user", "assistant" or "system"' }),
  content: z.union([text(), z.array(ContentBlock)], { error: 'must be a string or an array of blocks' }),
}).meta({ id: 'InputMessage' });

const toolName = 'must be 1 to 128 letters, digits, "_", "-", ".", ":" or "/"';

const Tool = looseObject({
  type: text().nullish().describe('"custom", or left out: tools that run on the server are not available.'),
  name: z.string({ error: toolName }).regex(TOOL_NAME, toolName),
  description: text().nullish(),
  input_schema: anyObject().optional().describe('JSON schema of the input.'),
  cache_control: cacheControl,
});

const parallel = { disable_parallel_tool_use: flag().nullish().describe('At most one call per answer.') };

const ToolChoice = z.discriminatedUnion(
  'type',
  [
    looseObject({ type: z.literal('auto'), ...parallel }),
    looseObject({ type: z.literal('any'), ...parallel }),
    looseObject({ type: z.literal('none') }),
    looseObject({ type: z.literal('tool'), name: named(), ...parallel }),
  ],
  { error: oneOf('"auto", "any", "none" or "tool"') },
);

const display = z
  .enum(['summarized', 'omitted'], { error: 'must be "summarized" or "omitted"' })
  .nullish()
  .describe('"omitted": thinking blocks come without their text.');

const Thinking = z.discriminatedUnion(
  'type',
  [
    looseObject({
      type: z.literal('enabled'),
      budget_tokens: z
        .int({ error: 'must be a whole number from 1 up' })
        .min(1, 'must be a whole number from 1 up')
        .nullish()
        .describe('Accepted; the thinking is bounded by max_tokens alone.'),
      display,
    }),
    looseObject({ type: z.literal('adaptive'), display }),
    looseObject({ type: z.literal('disabled') }),
  ],
  { error: oneOf('"enabled", "adaptive" or "disabled"') },
);

const JsonFormat = looseObject({
  type: z.literal('json_schema', { error: 'must be "json_schema"' }),
  schema: anyObject().describe('JSON schema of the answer. A keyword that cannot be enforced is refused by name.'),
});

const OutputConfig = looseObject({
  effort: z
    .enum(['low', 'medium', 'high', 'xhigh', 'max'], { error: 'must be "low", "medium", "high", "xhigh" or "max"' })
    .nullish()
    .describe('For templates that know it.'),
  format: JsonFormat.nullish(),
});

/** What a prompt is made of: the body of count_tokens, and part of that of a message. */
export const AnthropicPromptBody = looseObject({
  model: commonFields.model,
  messages: z
    .array(Message, { error: 'must be an array of messages' })
    .min(1, 'must have at least one message')
    .max(MAX_MESSAGES, `must have at most ${MAX_MESSAGES} messages`)
    .describe('A last message of the assistant is the beginning of the answer, which continues it.'),
  system: TextOrBlocks.nullish(),
  tools: z
    .array(Tool, { error: 'must be an array of tools' })
    .max(MAX_TOOLS, `must have at most ${MAX_TOOLS}`)
    .nullish(),
  tool_choice: ToolChoice.nullish(),
  thinking: Thinking.nullish().describe('Without it the model is asked not to think.'),
  output_config: OutputConfig.nullish(),
  output_format: JsonFormat.nullish().describe('Former name of output_config.format.'),
  cache_control: cacheControl,
}).meta({ id: 'CountTokensRequest' });

const maxTokens = 'must be a whole number from 1 up';
const stop = `must be a string of 1 to ${MAX_STOP_LENGTH} characters`;
const stops = `must be an array of at most ${MAX_STOP_STRINGS} strings, each of 1 to ${MAX_STOP_LENGTH} characters`;

export const AnthropicMessageBody = AnthropicPromptBody.extend({
  max_tokens: z
    .int({ error: maxTokens })
    .min(1, maxTokens)
    .describe('Most tokens of the answer, thinking included; more than the context has left is reduced to that.'),
  stop_sequences: z
    .array(z.string({ error: stop }).min(1, stop).max(MAX_STOP_LENGTH, stop), { error: stops })
    .max(MAX_STOP_STRINGS, stops)
    .nullish(),
  stream: commonFields.stream,
  metadata: looseObject({
    user_id: text().nullish().describe('Whom the request is for: the queue serves users in turn.'),
  }).nullish(),
  temperature: commonFields.temperature,
  top_p: commonFields.top_p,
  top_k: commonFields.top_k,
  min_p: commonFields.min_p,
  repetition_penalty: commonFields.repetition_penalty,
  presence_penalty: commonFields.presence_penalty,
  frequency_penalty: commonFields.frequency_penalty,
  seed: commonFields.seed,
  logit_bias: commonFields.logit_bias,
}).meta({ id: 'MessageRequest' });

export type AnthropicPromptBody = z.output<typeof AnthropicPromptBody>;
export type AnthropicMessageBody = z.output<typeof AnthropicMessageBody>;
export type AnthropicContentBlock = z.output<typeof ContentBlock>;
export type AnthropicTool = z.output<typeof Tool>;

const AnswerBlock = z.union([
  z.looseObject({ type: z.literal('thinking'), thinking: z.string(), signature: z.string() }),
  z.looseObject({ type: z.literal('text'), text: z.string(), citations: z.null() }),
  z.looseObject({ type: z.literal('tool_use'), id: z.string(), name: z.string(), input: anyObject() }),
]);

const Usage = z.looseObject({
  input_tokens: z.int().describe('Tokens of the prompt that had to be computed.'),
  cache_read_input_tokens: z.int().describe('Tokens of the prompt that were still there from an earlier request.'),
  cache_creation_input_tokens: z.literal(0),
  output_tokens: z.int(),
  output_tokens_details: z.looseObject({ thinking_tokens: z.int() }),
});

export const AnthropicMessage = z
  .looseObject({
    id: z.string(),
    type: z.literal('message'),
    role: z.literal('assistant'),
    model: z.string(),
    content: z.array(AnswerBlock),
    stop_reason: z.enum(['end_turn', 'max_tokens', 'stop_sequence', 'tool_use']).nullable(),
    stop_sequence: z.string().nullable(),
    usage: Usage,
  })
  .meta({ id: 'Message' });

export const AnthropicTokenCount = z.object({ input_tokens: z.int() });

export const AnthropicErrorReply = z
  .object({
    type: z.literal('error'),
    error: z.object({ type: z.string(), message: z.string() }),
    request_id: z.string(),
  })
  .meta({ id: 'AnthropicError' });

export type AnthropicMessage = z.output<typeof AnthropicMessage>;
export type AnthropicBlock = z.output<typeof AnswerBlock>;
export type AnthropicUsage = z.output<typeof Usage>;
