/** The object that the Responses API answers with, and its items. */

import * as z from 'zod';
import type { EffectiveSampling } from '../../engine/api.ts';
import type { TurnUsage } from '../turn.ts';
import type { ResponsesBody } from './responses-schema.ts';

const ItemStatus = z.enum(['in_progress', 'completed', 'incomplete']);
const Likely = z.object({ token: z.string(), bytes: z.array(z.int()), logprob: z.number() });

const OutputText = z.looseObject({
  type: z.literal('output_text'),
  text: z.string(),
  annotations: z.array(z.never()),
  logprobs: z.array(Likely.extend({ top_logprobs: z.array(Likely) })).describe('Empty unless asked for.'),
});
const ReasoningText = z.looseObject({ type: z.literal('reasoning_text'), text: z.string() });

const OutputItem = z.discriminatedUnion('type', [
  z.looseObject({
    type: z.literal('reasoning'),
    id: z.string(),
    status: ItemStatus,
    summary: z.array(z.never()),
    content: z.array(ReasoningText),
    encrypted_content: z.string().nullable().optional().describe('The same text; only when include asks for it.'),
  }),
  z.looseObject({
    type: z.literal('message'),
    id: z.string(),
    status: ItemStatus,
    role: z.literal('assistant'),
    content: z.array(OutputText),
  }),
  z.looseObject({
    type: z.literal('function_call'),
    id: z.string(),
    status: ItemStatus,
    call_id: z.string(),
    name: z.string(),
    arguments: z.string().describe('A JSON object as text.'),
  }),
]);

const Usage = z.looseObject({
  input_tokens: z.int(),
  input_tokens_details: z.looseObject({
    cached_tokens: z.int().describe('Tokens of the prompt that were still there from an earlier request.'),
  }),
  output_tokens: z.int(),
  output_tokens_details: z.looseObject({ reasoning_tokens: z.int() }),
  total_tokens: z.int(),
});

export const ResponseObject = z
  .looseObject({
    id: z.string(),
    object: z.literal('response'),
    created_at: z.int(),
    completed_at: z.int().nullable(),
    status: z.enum(['in_progress', 'completed', 'incomplete', 'failed']),
    error: z.looseObject({ code: z.string(), message: z.string() }).nullable(),
    incomplete_details: z.looseObject({ reason: z.literal('max_output_tokens') }).nullable(),
    model: z.string(),
    output: z.array(OutputItem),
    usage: Usage.nullable(),
  })
  .meta({ id: 'Response' });

export type ResponseObject = z.output<typeof ResponseObject>;
export type ResponseItem = z.output<typeof OutputItem>;
export type ResponseItemStatus = z.output<typeof ItemStatus>;
export type ResponseLogprobs = z.output<typeof OutputText>['logprobs'];

/** What all forms of one answer have in common. */
export interface ResponseHead {
  readonly id: string;
  readonly model: string;
  /** Seconds since 1970. */
  readonly createdAt: number;
  readonly body: ResponsesBody;
}

export type ResponseState = Pick<
  ResponseObject,
  'status' | 'output' | 'usage' | 'error' | 'incomplete_details' | 'completed_at'
>;

export const STARTED: ResponseState = {
  status: 'in_progress',
  output: [],
  usage: null,
  error: null,
  incomplete_details: null,
  completed_at: null,
};

/** `sampling`: the settings in force, as far as they are known. */
export function responseObject(
  { id, model, createdAt, body }: ResponseHead,
  sampling: EffectiveSampling | null,
  state: ResponseState,
): ResponseObject {
  const { format, ...text } = body.text ?? {};
  return {
    id,
    object: 'response',
    created_at: createdAt,
    ...state,
    model,
    background: false,
    frequency_penalty: body.frequency_penalty ?? sampling?.frequencyPenalty ?? 0,
    instructions: body.instructions ?? null,
    max_output_tokens: sampling?.maxTokens ?? body.max_output_tokens ?? null,
    max_tool_calls: null,
    metadata: body.metadata ?? {},
    parallel_tool_calls: body.parallel_tool_calls ?? true,
    presence_penalty: body.presence_penalty ?? sampling?.presencePenalty ?? 0,
    previous_response_id: null,
    prompt_cache_key: body.prompt_cache_key ?? null,
    reasoning: { effort: body.reasoning?.effort ?? null, summary: body.reasoning?.summary ?? null },
    safety_identifier: body.safety_identifier ?? null,
    seed: sampling?.seed ?? body.seed ?? null,
    service_tier: 'default',
    store: false,
    temperature: sampling?.temperature ?? body.temperature ?? null,
    text: { ...text, format: format ?? { type: 'text' } },
    tool_choice: body.tool_choice ?? 'auto',
    tools: (body.tools ?? []).map(tool => ({ description: null, parameters: null, strict: null, ...tool })),
    top_logprobs: body.top_logprobs ?? 0,
    top_p: sampling?.topP ?? body.top_p ?? null,
    truncation: 'disabled',
    user: body.user ?? null,
  };
}

export function responseUsage(usage: TurnUsage): z.output<typeof Usage> {
  return {
    input_tokens: usage.promptTokens,
    input_tokens_details: { cached_tokens: usage.cachedTokens },
    output_tokens: usage.completionTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: usage.promptTokens + usage.completionTokens,
  };
}
