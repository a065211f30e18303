/** The body of POST /v1/completions, and the turns it asks for: one for each prompt. */

import * as z from 'zod';
import { shown } from '../../common/shown.ts';
import { checkSampling } from '../../engine/sampling-options.ts';
import type { TurnRequest } from '../turn.ts';
import { badField, parseBody, unsupported } from './openai-body.ts';
import { commonFields, flag, maxTokensOf, outputLimits, sampling, samplingOf, withoutNulls } from './openai-fields.ts';
import { CHAT_HINTS, type UnsupportedField, type UnsupportedFields, unsupportedFields } from './openai-unsupported.ts';

/** As in the OpenAI API. */
export const DEFAULT_MAX_TOKENS = 16;
/** Prompts of one request: they run one after the other while its client waits. */
export const MAX_PROMPTS = 128;
/** Tokens that several prompts of one request may ask for together. */
export const MAX_BATCH_TOKENS = 65_536;

type Prompt = string | number[] | string[] | number[][];

const ids = { type: 'array', minItems: 1, items: { type: 'integer', minimum: 0 } };
const prompts = (items: object) => ({ type: 'array', minItems: 1, maxItems: MAX_PROMPTS, items });

export const CompletionBody = z
  .looseObject({
    // not a union: it would look at millions of token ids once for each kind of prompt
    prompt: z
      .custom<Prompt>(isPrompt, {
        error: `must be a string, an array of token ids, or an array of 1 to ${MAX_PROMPTS} of either kind, none without ids`,
      })
      .meta({ anyOf: [{ type: 'string' }, ids, prompts({ type: 'string' }), prompts(ids)] })
      .describe(
        'Text or token ids to be continued as they are, without a chat template; of several, each becomes a choice.',
      ),
    ...commonFields,
    ...outputLimits,
    max_tokens: outputLimits.max_tokens.describe(
      `Most tokens of each answer; default ${DEFAULT_MAX_TOKENS}. More than the context has left is reduced to that.`,
    ),
    echo: flag().nullish().describe('Begin each answer with its prompt; not together with logprobs.'),
    logprobs: sampling('logprobs', 'Log-probabilities of each token and of so many likeliest ones.'),
  })
  .describe('Texts to be continued.')
  .meta({ id: 'CompletionRequest' });
export type CompletionBody = z.output<typeof CompletionBody>;

const chatOnly = (...neutral: unknown[]): UnsupportedField => ({ neutral, hint: 'use /v1/chat/completions' });
const COMPLETION_UNSUPPORTED: UnsupportedFields = {
  ...unsupportedFields({
    ...CHAT_HINTS,
    conversation: 'use prompt',
    system: 'put it into prompt',
    thinking: 'use /v1/chat/completions',
    effort: 'use /v1/chat/completions',
    toolChoice: 'use /v1/chat/completions',
  }),
  messages: chatOnly(),
  tools: chatOnly([]),
  tool_choice: chatOnly('none'),
  reasoning_effort: chatOnly('none'),
  enable_thinking: chatOnly(false),
  chat_template_kwargs: chatOnly({}),
  top_logprobs: { neutral: [], hint: 'use logprobs' },
};

export function parseCompletion(body: unknown): CompletionBody {
  const { prompt } = (body ?? {}) as { prompt?: unknown };
  for (const [at, item] of Array.isArray(prompt) ? prompt.entries() : []) checkPromptItem(item, `prompt[${at}]`);
  return parseBody(CompletionBody, body, COMPLETION_UNSUPPORTED);
}

/** In the order of the prompts. Throws RequestErrors that name the field. `client`: whose turn it is in the queue. */
export function completionTurns(body: CompletionBody, client: string): TurnRequest[] {
  if (body.echo && body.logprobs != null) {
    throw unsupported('logprobs', 'leave one of them out', 'is not supported together with echo');
  }
  const maxTokens = maxTokensOf(body) ?? DEFAULT_MAX_TOKENS;
  const all = promptsOf(body.prompt);
  if (all.length > 1 && all.length * maxTokens > MAX_BATCH_TOKENS) {
    const what = `of ${maxTokens} for each of ${all.length} prompts is more than ${MAX_BATCH_TOKENS} together`;
    throw badField('max_tokens', what, 'send fewer prompts at a time');
  }
  const shared = { client, maxTokens, ...samplingOf(body), ...withoutNulls({ logprobs: body.logprobs }) };
  checkSampling(shared);
  return all.map(prompt => ({ ...shared, prompt: { kind: 'text', prompt, echo: body.echo ?? false } }));
}

/** Names the id at fault; what kinds may stand together is for the schema to say. */
function checkPromptItem(item: unknown, at: string): void {
  if (typeof item === 'number' && !isId(item))
    throw badField(at, `must be a token id, not ${item}`, 'ids are whole numbers from 0 up');
  if (!Array.isArray(item)) return;
  const bad = item.findIndex(id => !isId(id));
  if (bad >= 0)
    throw badField(`${at}[${bad}]`, `must be a token id, not ${shown(item[bad])}`, 'ids are whole numbers from 0 up');
}

function isId(value: unknown): boolean {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function promptsOf(prompt: Prompt): (string | number[])[] {
  if (typeof prompt === 'string') return [prompt];
  return typeof prompt[0] === 'number' ? [prompt as number[]] : (prompt as (string | number[])[]);
}

function isPrompt(value: unknown): boolean {
  if (typeof value === 'string' || isIds(value)) return true;
  if (!Array.isArray(value) || value.length === 0 || value.length > MAX_PROMPTS) return false;
  return value.every(item => typeof item === 'string') || value.every(isIds);
}

function isIds(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every(isId);
}
