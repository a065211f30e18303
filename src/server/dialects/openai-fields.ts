/**
 * Fields that the APIs of OpenAI share: schemas (types, checks and the OpenAPI document in one) and what they come to in a turn.
 * Every message of a schema says what the field must be; the field's name is put before it where the body is parsed.
 */

import * as z from 'zod';
import { SAMPLING_RULES, type SamplingField } from '../../engine/sampling-options.ts';
import { MAX_STOP_LENGTH, MAX_STOP_STRINGS } from '../../engine/stops.ts';
import type { GrammarSpec, JsonSchema } from '../../grammar/api.ts';
import type { TurnRequest, TurnUsage } from '../turn.ts';
import { asNot, badField, unsupported } from './openai-body.ts';

export const text = () => z.string({ error: 'must be a string' });
export const flag = () => z.boolean({ error: 'must be true or false' });
export const anyObject = () => z.record(z.string(), z.unknown(), { error: 'must be an object' });
export const looseObject = <T extends z.core.$ZodLooseShape>(shape: T) =>
  z.looseObject(shape, { error: 'must be an object' });

/** Message of a discriminated union: it stands at the object when that is none, else at the field that tells which. */
export const oneOf = (names: string) => (issue: { code?: string }) =>
  issue.code === 'invalid_type' ? 'must be an object' : `must be ${names}`;

/** A number in the range that the engine has for it. */
export function sampling(field: SamplingField, description: string) {
  const { accepts, range } = SAMPLING_RULES[field];
  const error = `must be ${range}`;
  const whole = range.startsWith('a whole number');
  return z
    .number({ error })
    .refine(accepts, error)
    .meta(whole ? { type: 'integer' } : {})
    .nullish()
    .describe(`${description} ${DEFAULTS[field] ?? 'Default: as the model suggests.'} Range: ${range}.`);
}

/** What a field comes to that is left out, where generation_config.json has no say in it. */
const DEFAULTS: Readonly<Partial<Record<SamplingField, string>>> = {
  seed: 'Default: a random one.',
  presencePenalty: 'Default: 0.',
  frequencyPenalty: 'Default: 0.',
  maxTokens: 'Default: as the model suggests, else the rest of the context.',
  logprobs: 'Default: none.',
};

const maxTokens = (description: string) => sampling('maxTokens', description);
const stopMessage = `must be a string or an array of at most ${MAX_STOP_STRINGS} strings, each of 1 to ${MAX_STOP_LENGTH} characters`;
const stopString = `must be a string of 1 to ${MAX_STOP_LENGTH} characters`;
const StopString = z.string({ error: stopString }).min(1, stopString).max(MAX_STOP_LENGTH, stopString);

/** Fields of sampling and of the stream, the same on every route. */
export const commonFields = {
  model: text().nullish().describe('The id that /v1/models lists, or nothing.'),
  temperature: sampling('temperature', '0 takes the likeliest token.'),
  top_p: sampling('topP', 'Only the likeliest tokens whose probabilities add up to this.'),
  top_k: sampling('topK', 'Only so many of the likeliest tokens.'),
  min_p: sampling('minP', 'Only tokens at least so likely as this share of the likeliest.'),
  repetition_penalty: sampling('repetitionPenalty', 'Divides the scores of tokens of the prompt and the answer.'),
  presence_penalty: sampling('presencePenalty', 'Taken once from the scores of tokens of the answer so far.'),
  frequency_penalty: sampling(
    'frequencyPenalty',
    'Taken from the scores of tokens of the answer as often as they occurred.',
  ),
  seed: sampling('seed', 'The same prompt and seed give the same bytes.'),
  logit_bias: z
    .record(z.string(), z.number({ error: 'must be a number from -100 to 100' }), {
      error: 'must be an object of token ids with numbers from -100 to 100',
    })
    .nullish()
    .describe('Token id -> value from -100 to 100 that is added to its score; at most 1024 entries.'),
  stop: z
    .union([StopString, z.array(StopString).max(MAX_STOP_STRINGS, stopMessage)], { error: stopMessage })
    .nullish()
    .describe(`The answer ends before the first of these: one string, or up to ${MAX_STOP_STRINGS}.`),
  n: z
    .number({ error: 'must be 1' })
    .refine(n => Number.isInteger(n) && n >= 1, 'must be 1')
    .meta({ type: 'integer' })
    .nullish()
    .describe('Answers per request: only 1.'),
  stream: flag().nullish().describe('Send the answer as server-sent events while it is made.'),
  stream_options: looseObject({
    include_usage: flag().nullish().describe('A last chunk without choices that has the usage; null in all others.'),
    include_progress: flag()
      .nullish()
      .describe('Chunks without choices while the prompt is read: `progress` {done, total, eta_ms}. An extension.'),
  })
    .nullish()
    .describe('Only with stream.'),
  user: text().nullish().describe('Whom the request is for: the queue serves users in turn.'),
  response_format: z
    .discriminatedUnion(
      'type',
      [
        looseObject({ type: z.literal('text') }),
        looseObject({ type: z.literal('json_object') }),
        looseObject({
          type: z.literal('json_schema'),
          json_schema: looseObject({
            name: text().nullish(),
            description: text().nullish(),
            schema: anyObject().describe(
              'JSON schema of the answer. A keyword that cannot be enforced is refused by name.',
            ),
            strict: flag().nullish().describe('The schema is enforced in any case.'),
          }),
        }),
      ],
      { error: oneOf('"text", "json_object" or "json_schema"') },
    )
    .nullish()
    .describe('What the answer must look like; tokens that do not fit cannot be chosen.'),
  grammar: text().min(1, 'must not be empty').nullish().describe('A grammar in GBNF for the answer. An extension.'),
  regex: text()
    .min(1, 'must not be empty')
    .nullish()
    .describe('A regular expression for the whole answer. An extension.'),
};

export const outputLimits = {
  max_tokens: maxTokens('Most tokens of the answer; more than the context has left is reduced to that.'),
  max_completion_tokens: maxTokens('The same as max_tokens; of both, the smaller one counts.'),
};

/** The smaller of both limits; null without any. */
export function maxTokensOf(body: {
  max_tokens?: number | null;
  max_completion_tokens?: number | null;
}): number | null {
  const limits = [body.max_tokens, body.max_completion_tokens].filter(limit => limit != null);
  return limits.length > 0 ? Math.min(...limits) : null;
}

const Common = z.looseObject(commonFields);
type CommonBody = z.output<typeof Common>;

/** The sampler's part of a turn; fields that are null are left out. */
export function samplingOf(body: CommonBody): Omit<TurnRequest, 'prompt' | 'client' | 'logprobs'> {
  const stop = typeof body.stop === 'string' ? [body.stop] : body.stop;
  if (body.n != null && body.n > 1) throw unsupported('n', 'send the request several times', asNot(body.n));
  if (body.stream_options && !body.stream) throw badField('stream_options', 'needs stream', 'set stream to true');
  return withoutNulls({
    temperature: body.temperature,
    topP: body.top_p,
    topK: body.top_k,
    minP: body.min_p,
    repetitionPenalty: body.repetition_penalty,
    presencePenalty: body.presence_penalty,
    frequencyPenalty: body.frequency_penalty,
    seed: body.seed,
    logitBias: body.logit_bias,
    stop: stop?.length ? stop : null,
    ...formatOf(body),
  });
}

/** What is asked of the answer's form; two such fields would contradict each other. */
function formatOf({ response_format, grammar, regex }: CommonBody): Pick<TurnRequest, 'format' | 'formatField'> {
  const asked: [string, GrammarSpec][] = [];
  if (response_format?.type === 'json_object') asked.push(['response_format', { kind: 'json_object' }]);
  if (response_format?.type === 'json_schema') {
    const schema = response_format.json_schema.schema as JsonSchema;
    asked.push(['response_format', { kind: 'json_schema', schema }]);
  }
  if (grammar != null) asked.push(['grammar', { kind: 'gbnf', text: grammar }]);
  if (regex != null) asked.push(['regex', { kind: 'regex', pattern: regex }]);
  if (asked.length > 1) throw badField(asked[1][0], `cannot be joined with ${asked[0][0]}`, 'give one of them');
  return asked.length > 0 ? { format: asked[0][1], formatField: asked[0][0] } : {};
}

type Present<T> = { [K in keyof T]?: NonNullable<T[K]> };

export function withoutNulls<T extends object>(fields: T): Present<T> {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value != null)) as Present<T>;
}

export const Usage = z
  .object({
    prompt_tokens: z.int(),
    completion_tokens: z.int(),
    total_tokens: z.int(),
    prompt_tokens_details: z.object({
      cached_tokens: z.int().describe('Tokens of the prompt that were still there from an earlier request.'),
    }),
    completion_tokens_details: z.object({ reasoning_tokens: z.int() }),
  })
  .meta({ id: 'CompletionUsage' });
export type Usage = z.output<typeof Usage>;

/** Sum of what several turns used. */
export function usageOf(turns: readonly TurnUsage[]): Usage {
  const sum = (count: (usage: TurnUsage) => number) => turns.reduce((total, usage) => total + count(usage), 0);
  const [prompt, completion] = [sum(u => u.promptTokens), sum(u => u.completionTokens)];
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: sum(u => u.cachedTokens) },
    completion_tokens_details: { reasoning_tokens: sum(u => u.reasoningTokens) },
  };
}
