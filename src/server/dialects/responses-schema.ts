/** The body of the OpenAI Responses API: what is read of a request. Other fields are let pass. */

import * as z from 'zod';
import { MAX_TOOLS, TOOL_NAME } from './openai-chat-tools.ts';
import { anyObject, commonFields, flag, looseObject, oneOf, sampling, text } from './openai-fields.ts';

/** Each is rendered by the template; far beyond what a context holds. */
const MAX_ITEMS = 10_000;

const choice = <const T extends readonly [string, ...string[]]>(...values: T) =>
  z.enum(values, { error: `must be ${values.map(value => `"${value}"`).join(' or ')}` });

const named = () => text().min(1, 'must not be empty');

const TextPart = z.discriminatedUnion(
  'type',
  [
    looseObject({ type: z.literal('input_text'), text: text() }),
    looseObject({ type: z.literal('output_text'), text: text() }),
    looseObject({ type: z.literal('refusal'), refusal: text() }),
  ],
  { error: oneOf('"input_text", "output_text" or "refusal"') },
);
const TextOrParts = z.union([text(), z.array(TextPart)], { error: 'must be a string or an array of parts' });

const Message = looseObject({
  type: z.literal('message').optional(),
  role: choice('user', 'assistant', 'system', 'developer'),
  content: TextOrParts,
});

const FunctionCall = looseObject({
  type: z.literal('function_call'),
  call_id: named(),
  name: named(),
  arguments: text().describe('A JSON object as text; empty = no arguments.'),
});

const FunctionCallOutput = looseObject({
  type: z.literal('function_call_output'),
  call_id: named(),
  output: TextOrParts,
});

const ReasoningText = looseObject({ text: text() });

const Reasoning = looseObject({
  type: z.literal('reasoning'),
  content: z.array(ReasoningText, { error: 'must be an array of texts' }).nullish(),
  summary: z.array(ReasoningText, { error: 'must be an array of texts' }).nullish().describe('Read without content.'),
  encrypted_content: text().nullish().describe('As this server gave it; that of others cannot be read.'),
});

const Item = z
  .discriminatedUnion('type', [Message, FunctionCall, FunctionCallOutput, Reasoning], {
    error: oneOf('"message", "function_call", "function_call_output" or "reasoning"'),
  })
  .meta({ id: 'ResponseInputItem' });

const items = `an array of 1 to ${MAX_ITEMS} items`;
const Input = z.union([text(), z.array(Item).min(1, `must be ${items}`).max(MAX_ITEMS, `must be ${items}`)], {
  error: `must be a string or ${items}`,
});

const functionType = z.literal('function', { error: 'must be "function"' });
const toolName = 'must be 1 to 128 letters, digits, "_", "-", ".", ":" or "/"';

const Tool = looseObject({
  type: functionType,
  name: z.string({ error: toolName }).regex(TOOL_NAME, toolName),
  description: text().nullish(),
  parameters: anyObject().nullish().describe('JSON schema of an object: the arguments. Missing: any object.'),
  strict: flag()
    .nullish()
    .describe(
      'Arguments follow the schema whenever tool_choice forces a call, with or without this; never under "auto".',
    ),
});

const NamedFunction = looseObject({ type: functionType, name: named() });
const AllowedTools = looseObject({
  type: z.literal('allowed_tools'),
  mode: choice('auto', 'required'),
  tools: z.array(NamedFunction, { error: 'must be an array of functions' }),
});
const ToolChoice = z.union(
  [
    choice('auto', 'none', 'required'),
    z.discriminatedUnion('type', [NamedFunction, AllowedTools], { error: oneOf('"function" or "allowed_tools"') }),
  ],
  { error: 'must be "auto", "none", "required", a function or allowed_tools' },
);

const Format = z.discriminatedUnion(
  'type',
  [
    looseObject({ type: z.literal('text') }),
    looseObject({ type: z.literal('json_object') }),
    looseObject({
      type: z.literal('json_schema'),
      name: text().nullish(),
      description: text().nullish(),
      schema: anyObject().describe('JSON schema of the answer. A keyword that cannot be enforced is refused by name.'),
      strict: flag().nullish().describe('The schema is enforced in any case.'),
    }),
  ],
  { error: oneOf('"text", "json_object" or "json_schema"') },
);

const summary = choice('auto', 'concise', 'detailed').nullish();

export const INCLUDABLE = [
  'reasoning.encrypted_content',
  'message.output_text.logprobs',
  'message.input_image.image_url',
  'file_search_call.results',
  'web_search_call.results',
  'web_search_call.action.sources',
  'computer_call_output.output.image_url',
  'code_interpreter_call.outputs',
] as const;

export const ResponsesBody = looseObject({
  model: commonFields.model,
  input: Input.describe('A text of the user, or the whole conversation: nothing is kept between requests.'),
  instructions: text().nullish().describe('A system message before the input.'),
  max_output_tokens: sampling(
    'maxTokens',
    'Most tokens of the answer, reasoning included; more than the context has left is reduced to that.',
  ),
  temperature: commonFields.temperature,
  top_p: commonFields.top_p,
  top_logprobs: sampling('logprobs', 'Log-probabilities of the tokens of the text, and of so many likeliest ones.'),
  tools: z
    .array(Tool, { error: `must be an array of at most ${MAX_TOOLS} tools` })
    .max(MAX_TOOLS, `must be an array of at most ${MAX_TOOLS} tools`)
    .nullish(),
  tool_choice: ToolChoice.nullish(),
  parallel_tool_calls: flag().nullish().describe('Default true. false: at most one call.'),
  text: looseObject({ format: Format.nullish(), verbosity: choice('low', 'medium', 'high').nullish() }).nullish(),
  reasoning: looseObject({
    effort: choice('none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max')
      .nullish()
      .describe('Given to templates that know it; "none": the model is asked not to reason.'),
    summary: summary.describe('Accepted: the reasoning is given in full.'),
    generate_summary: summary,
  }).nullish(),
  include: z
    .array(choice(...INCLUDABLE), { error: 'must be an array' })
    .nullish()
    .describe('reasoning.encrypted_content and message.output_text.logprobs; the others name what never occurs here.'),
  stream: commonFields.stream,
  stream_options: looseObject({
    include_progress: flag()
      .nullish()
      .describe(
        'While the prompt is read, further response.in_progress events with `progress` {done, total, eta_ms}. An extension.',
      ),
  })
    .nullish()
    .describe('Only with stream.'),
  metadata: z.record(z.string(), text(), { error: 'must be an object' }).nullish().describe('Comes back as it is.'),
  user: commonFields.user,
  safety_identifier: text().nullish().describe('Comes back as it is.'),
  prompt_cache_key: text().nullish().describe('Comes back as it is; beginnings of prompts are cached without it.'),
  // beyond OpenAI's API
  top_k: commonFields.top_k,
  min_p: commonFields.min_p,
  repetition_penalty: commonFields.repetition_penalty,
  presence_penalty: commonFields.presence_penalty,
  frequency_penalty: commonFields.frequency_penalty,
  seed: commonFields.seed,
  logit_bias: commonFields.logit_bias,
  stop: commonFields.stop,
  grammar: commonFields.grammar,
  regex: commonFields.regex,
}).meta({ id: 'ResponseRequest' });

export type ResponsesBody = z.output<typeof ResponsesBody>;
export type ResponsesItem = z.output<typeof Item>;
export type ResponsesText = z.output<typeof TextOrParts>;
