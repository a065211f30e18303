/** What a request asks of the sampler: checked, then completed from generation_config.json. */

import { type ColiError, ConfigError, RequestError } from '../common/errors.ts';
import { shown } from '../common/shown.ts';
import type { EffectiveSampling, SamplingOptions } from './api.ts';
import { MAX_SEED, randomSeed } from './random.ts';

/** As in the OpenAI API. */
export const MAX_LOGPROBS = 20;
/** As in the OpenAI API; a larger bias could also make a logit overflow. */
export const MAX_LOGIT_BIAS = 100;
/** Entries; a request that biases more tokens than this is a mistake or an attack. */
export const MAX_LOGIT_BIAS_ENTRIES = 1024;

export type SamplingRequest = SamplingOptions & { readonly maxTokens?: number };

interface Rule {
  /** Name in messages, in generation_config.json and in the HTTP API. */
  readonly name: string;
  readonly accepts: (value: number) => boolean;
  readonly range: string;
}

const wholeFrom0 = (x: number) => Number.isInteger(x) && x >= 0;
const within2 = (x: number) => x >= -2 && x <= 2;

export const SAMPLING_RULES = {
  temperature: {
    name: 'temperature',
    accepts: x => x >= 0 && Number.isFinite(x),
    range: 'a number from 0 (greedy) up',
  },
  topP: { name: 'top_p', accepts: x => x > 0 && x <= 1, range: 'a number above 0, at most 1' },
  topK: { name: 'top_k', accepts: wholeFrom0, range: 'a whole number from 0 (no limit) up' },
  minP: { name: 'min_p', accepts: x => x >= 0 && x <= 1, range: 'a number from 0 (off) to 1' },
  repetitionPenalty: {
    name: 'repetition_penalty',
    accepts: x => x >= 0.01 && x <= 100,
    range: 'a number from 0.01 to 100 (1 = off)',
  },
  presencePenalty: { name: 'presence_penalty', accepts: within2, range: 'a number from -2 to 2' },
  frequencyPenalty: { name: 'frequency_penalty', accepts: within2, range: 'a number from -2 to 2' },
  seed: { name: 'seed', accepts: x => wholeFrom0(x) && x <= MAX_SEED, range: 'a whole number from 0 to 2^53 - 1' },
  maxTokens: { name: 'max_tokens', accepts: wholeFrom0, range: 'a whole number from 0 up' },
  logprobs: {
    name: 'logprobs',
    accepts: x => wholeFrom0(x) && x <= MAX_LOGPROBS,
    range: `a whole number from 0 to ${MAX_LOGPROBS}`,
  },
} as const satisfies Record<string, Rule>;

export type SamplingField = keyof typeof SAMPLING_RULES;

/** Refuses the first field of a request that is out of range; undefined and null mean "the default". */
export function checkSampling(request: SamplingRequest): void {
  for (const field of Object.keys(SAMPLING_RULES) as SamplingField[]) readRequest(request, field);
  checkLogitBias(request.logitBias);
}

/**
 * Values in force: the request's, else generation_config.json's, else temperature 1 and top_p 1; `do_sample: false`
 * there means greedy unless the request gives a temperature. maxTokens is clamped to `contextLeft`.
 */
export function resolveSampling(
  request: SamplingRequest,
  generationConfig: Readonly<Record<string, unknown>> | null,
  contextLeft: number,
  seedSource: () => number = randomSeed,
): EffectiveSampling {
  checkSampling(request);
  const file = generationConfig ?? {};
  const pick = (field: SamplingField, fallback: number, key: string = SAMPLING_RULES[field].name) =>
    readRequest(request, field) ?? readFile(file, field, key) ?? fallback;
  const maxTokens = pick('maxTokens', contextLeft, 'max_new_tokens');
  return {
    temperature: readRequest(request, 'temperature') ?? (isGreedy(file) ? 0 : pick('temperature', 1)),
    topP: pick('topP', 1),
    topK: pick('topK', 0),
    minP: pick('minP', 0),
    repetitionPenalty: pick('repetitionPenalty', 1),
    presencePenalty: readRequest(request, 'presencePenalty') ?? 0,
    frequencyPenalty: readRequest(request, 'frequencyPenalty') ?? 0,
    seed: readRequest(request, 'seed') ?? seedSource(),
    maxTokens: Math.min(maxTokens, Math.max(contextLeft, 0)),
  };
}

/** Settings of generation_config.json that are followed, and those that change no token of one sampled answer. */
const FOLLOWED_SETTINGS = 'do_sample temperature top_p top_k min_p repetition_penalty max_new_tokens eos_token_id';
const HARMLESS_SETTINGS =
  'bos_token_id pad_token_id decoder_start_token_id transformers_version _from_model_config _commit_hash ' +
  'trust_remote_code use_cache cache_implementation cache_config return_legacy_cache output_attentions ' +
  'output_hidden_states output_scores output_logits return_dict_in_generate low_memory disable_compile compile_config ' +
  'prefill_chunk_size use_model_defaults prompt_lookup_num_tokens max_matching_ngram_size is_assistant ' +
  'num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold assistant_early_exit ' +
  'assistant_lookbehind target_lookbehind num_return_sequences early_stopping length_penalty';
const NOT_TOLD: ReadonlySet<string> = new Set(`${FOLLOWED_SETTINGS} ${HARMLESS_SETTINGS}`.split(' '));

/** Values at which other settings change nothing; null and false are so for all. */
const NEUTRAL_VALUES: Readonly<Record<string, unknown>> = {
  num_beams: 1,
  num_beam_groups: 1,
  diversity_penalty: 0,
  penalty_alpha: 0,
  typical_p: 1,
  epsilon_cutoff: 0,
  eta_cutoff: 0,
  no_repeat_ngram_size: 0,
  encoder_no_repeat_ngram_size: 0,
  encoder_repetition_penalty: 1,
  min_length: 0,
  min_new_tokens: 0,
  guidance_scale: 1,
};

/** Settings of generation_config.json that this engine does not know to be without effect on the output. */
export function unsupportedGenerationSettings(file: Readonly<Record<string, unknown>> | null): string[] {
  return Object.entries(file ?? {})
    .filter(([key, value]) => value !== null && value !== false && !NOT_TOLD.has(key))
    .filter(([key, value]) => !Object.hasOwn(NEUTRAL_VALUES, key) || value !== NEUTRAL_VALUES[key])
    .map(([key]) => key);
}

function readRequest(request: SamplingRequest, field: SamplingField): number | undefined {
  const refuse = (message: string, hint: string) =>
    new RequestError('BAD_PARAMETER', message, { hint, details: { parameter: SAMPLING_RULES[field].name } });
  return readNumber(request[field], SAMPLING_RULES[field], SAMPLING_RULES[field].name, refuse);
}

function readFile(file: Readonly<Record<string, unknown>>, field: SamplingField, key: string): number | undefined {
  const refuse = (message: string) =>
    new ConfigError('BAD_GENERATION_CONFIG', `generation_config.json: ${message}`, {
      hint: `correct the file, or give ${SAMPLING_RULES[field].name} with the request`,
      details: { path: key },
    });
  return readNumber(file[key], SAMPLING_RULES[field], key, refuse);
}

function readNumber(
  value: unknown,
  rule: Rule,
  name: string,
  refuse: (message: string, hint: string) => ColiError,
): number | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'number' && rule.accepts(value)) return value;
  throw refuse(`${name} must be ${rule.range}, not ${shown(value)}`, `leave ${name} out for the default`);
}

function isGreedy(file: Readonly<Record<string, unknown>>): boolean {
  const value = file['do_sample'] ?? true;
  if (typeof value === 'boolean') return !value;
  throw new ConfigError('BAD_GENERATION_CONFIG', `generation_config.json: do_sample must be true or false`, {
    hint: 'correct the file, or give temperature with the request',
    details: { path: 'do_sample' },
  });
}

function checkLogitBias(bias: unknown): void {
  const refuse = (message: string) =>
    new RequestError('BAD_PARAMETER', `logit_bias ${message}`, {
      hint: `give an object of token ids with numbers from -${MAX_LOGIT_BIAS} to ${MAX_LOGIT_BIAS}`,
      details: { parameter: 'logit_bias' },
    });
  if (bias === undefined || bias === null) return;
  if (typeof bias !== 'object' || Array.isArray(bias)) throw refuse('must be an object');
  const entries = Object.entries(bias);
  if (entries.length > MAX_LOGIT_BIAS_ENTRIES) {
    throw refuse(`has ${entries.length} entries, at most ${MAX_LOGIT_BIAS_ENTRIES}`);
  }
  for (const [id, value] of entries) {
    if (!/^\d{1,10}$/.test(id)) throw refuse(`names ${shown(id)}, which is no token id`);
    if (typeof value !== 'number' || !(Math.abs(value) <= MAX_LOGIT_BIAS)) {
      throw refuse(`of token ${id} must be a number from -${MAX_LOGIT_BIAS} to ${MAX_LOGIT_BIAS}, not ${shown(value)}`);
    }
  }
}
