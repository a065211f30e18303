/** What the config.json files of decoders with grouped-query attention have in common, and the description they lead to. */

import { z } from 'zod';
import { type AttentionShape, PLAIN } from '../layers/attention.ts';
import type { RouterShape } from '../layers/router.ts';
import { count, eosField, epsilon, type Issue, LIMITS } from './config.ts';
import type { GqaMoe } from './gqa-moe.ts';
import { type RopeConfig, ropeFields, ropeOf } from './rope-config.ts';

/** To be spread into a family's schema. */
export const decoderFields = {
  hidden_size: count(LIMITS.width),
  intermediate_size: count(LIMITS.width),
  num_hidden_layers: count(LIMITS.layers),
  num_attention_heads: count(LIMITS.heads),
  num_key_value_heads: count(LIMITS.heads).nullish(),
  head_dim: count(LIMITS.headDim).nullish(),
  vocab_size: count(LIMITS.vocabulary),
  max_position_embeddings: count(LIMITS.context),
  rms_norm_eps: epsilon,
  hidden_act: z.literal('silu').default('silu'),
  tie_word_embeddings: z.boolean().default(false),
  eos_token_id: eosField,
  ...ropeFields,
};

export type DecoderFields = z.output<z.ZodObject<typeof decoderFields>>;

export function headDimOf(c: DecoderFields): number {
  return c.head_dim ?? Math.floor(c.hidden_size / c.num_attention_heads);
}

/** Relations between the fields. partial: share of a head that is rotated. */
export function checkDecoder(c: DecoderFields, partial: number, issue: Issue): void {
  const kvHeads = c.num_key_value_heads ?? c.num_attention_heads;
  if (c.num_attention_heads % kvHeads !== 0) issue('num_key_value_heads', 'must divide num_attention_heads');
  if (!c.head_dim && c.hidden_size % c.num_attention_heads !== 0) {
    issue('hidden_size', 'must be a multiple of num_attention_heads when there is no head_dim');
  }
  const rotaryDim = headDimOf(c) * partial;
  if (rotaryDim % 2 !== 0) issue('head_dim', `must give an even number of rotated elements, not ${rotaryDim}`);
}

/** What a family says beyond the common fields. */
export interface Moe {
  readonly experts: number;
  readonly topK: number;
  readonly width: number;
  readonly router: Omit<RouterShape, 'bias'>;
}

/** A description with nothing special: no biases, windows, sinks, dense layers or shared experts. */
export function describeDecoder(
  c: DecoderFields,
  rope: RopeConfig,
  moe: Moe,
  names: GqaMoe['names'],
  attention: Partial<AttentionShape> = {},
): GqaMoe {
  const headDim = headDimOf(c);
  const rotaryDim = headDim * rope.partial;
  return {
    layers: c.num_hidden_layers,
    vocabSize: c.vocab_size,
    maxContext: c.max_position_embeddings,
    tied: c.tie_word_embeddings,
    eps: c.rms_norm_eps,
    attention: {
      ...PLAIN,
      hiddenSize: c.hidden_size,
      heads: c.num_attention_heads,
      kvHeads: c.num_key_value_heads ?? c.num_attention_heads,
      headDim,
      rotaryDim,
      normEps: c.rms_norm_eps,
      ...attention,
    },
    rope: ropeOf(rope, rotaryDim),
    windowOf: () => 0,
    qkvBias: false,
    outputBias: false,
    sinks: false,
    moe: {
      hiddenSize: c.hidden_size,
      expertWidth: moe.width,
      experts: moe.experts,
      topK: moe.topK,
      clamped: null,
      biases: false,
    },
    router: moe.router,
    denseWidth: c.intermediate_size,
    isDense: () => false,
    sharedWidth: 0,
    names,
    hasPrediction: false,
    ignored: [],
  };
}
