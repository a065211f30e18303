/**
 * gpt-oss (OpenAI): every other layer sees a window only, a logit per head joins the softmax without a value (sinks), experts have
 * biases and a clamped activation, weights are softmax over the chosen logits. Source: Hugging Face transformers,
 * modeling_gpt_oss, and the model card.
 */

import { z } from 'zod';
import { plainChoice } from '../layers/router.ts';
import type { ExpertForm, ExpertNames, MatrixRef } from '../quant/refs.ts';
import { checkExperts, count, LIMITS, parseFields, positive } from './config.ts';
import { expertNames } from './expert-forms.ts';
import type { Family } from './family.ts';
import { checkDecoder, decoderFields, describeDecoder } from './gqa-config.ts';
import { type GqaMoe, gqaMoeFamily } from './gqa-moe.ts';
import { ropeConfig } from './rope-config.ts';
import { MLP_NAMES } from './sparse-mlp.ts';

/** Of the gate's sigmoid; a constant of the published code. */
const ALPHA = 1.702;

const LAYER_TYPES = ['sliding_attention', 'full_attention'] as const;

const schema = z.object({
  ...decoderFields,
  num_local_experts: count(LIMITS.experts),
  num_experts_per_tok: count(LIMITS.experts),
  sliding_window: count(LIMITS.context),
  layer_types: z.array(z.enum(LAYER_TYPES)).max(LIMITS.layers).optional(),
  attention_bias: z.literal(true).default(true),
  swiglu_limit: positive.default(7),
});

export type GptOssConfig = ReturnType<typeof parseConfig>;

function parseConfig(raw: Readonly<Record<string, unknown>>) {
  const c = parseFields('gpt_oss', schema, raw, (c, issue) => {
    checkDecoder(c, ropeConfig(c, { theta: 150000 }, issue).partial, issue);
    checkExperts(c.num_experts_per_tok, c.num_local_experts, issue);
    if (c.layer_types && c.layer_types.length !== c.num_hidden_layers) {
      issue('layer_types', `must have an entry for each of the ${c.num_hidden_layers} layers`);
    }
  });
  return { ...c, rope: ropeConfig(c, { theta: 150000 }) };
}

/** The first layer sees a window, the next everything, and so on, unless the config says otherwise. */
function isSliding(c: GptOssConfig, layer: number): boolean {
  return c.layer_types ? c.layer_types[layer] === 'sliding_attention' : layer % 2 === 0;
}

function describe(c: GptOssConfig): GqaMoe {
  const moe = {
    experts: c.num_local_experts,
    topK: c.num_experts_per_tok,
    width: c.intermediate_size,
    router: { ...plainChoice(c.num_experts_per_tok, 'softmax'), score: 'logits' as const },
  };
  const names = {
    ...MLP_NAMES,
    router: 'router',
    routerBias: 'router.bias',
    experts: (layer: number, expert: number, prefix: string) => experts(c, layer, expert, prefix),
  };
  const plain = describeDecoder(c, c.rope, moe, names);
  return {
    ...plain,
    windowOf: layer => (isSliding(c, layer) ? c.sliding_window : 0),
    qkvBias: true,
    outputBias: true,
    sinks: true,
    moe: { ...plain.moe, clamped: { limit: c.swiglu_limit, alpha: ALPHA }, biases: true },
  };
}

/**
 * MXFP4 as published: gate and up rows alternate in `gate_up_proj`. bfloat16 saves have the same matrices transposed. GGUF files
 * have them apart, see `separate`.
 */
function forms(c: GptOssConfig, expert: number, prefix: string): ExpertForm[] {
  const slice = { index: expert, of: c.num_local_experts };
  const joint = (first: number) => ({ first, step: 2, of: 2 * c.intermediate_size });
  const refs = (transposed: boolean): Omit<ExpertForm, 'biases'> => ({
    gate: { name: `${prefix}.gate_up_proj`, slice, rows: joint(0), transposed },
    up: { name: `${prefix}.gate_up_proj`, slice, rows: joint(1), transposed },
    down: { name: `${prefix}.down_proj`, slice, transposed },
  });
  const biases = {
    gate: { name: `${prefix}.gate_up_proj_bias`, slice, rows: joint(0) },
    up: { name: `${prefix}.gate_up_proj_bias`, slice, rows: joint(1) },
    down: { name: `${prefix}.down_proj_bias`, slice },
  };
  const published: ExpertForm = { ...refs(false), biases };
  const saved: ExpertForm = { ...refs(true), biases };
  return [published, saved, separate(prefix, slice)];
}

function experts(c: GptOssConfig, layer: number, expert: number, prefix: string): ExpertNames {
  return expertNames(layer, expert, prefix, () => forms(c, expert, prefix));
}

function separate(prefix: string, slice: MatrixRef['slice']): ExpertForm {
  const ref = (name: string): MatrixRef => ({ name: `${prefix}.${name}`, slice });
  return {
    gate: ref('gate_proj.weight'),
    up: ref('up_proj.weight'),
    down: ref('down_proj.weight'),
    biases: { gate: ref('gate_proj.bias'), up: ref('up_proj.bias'), down: ref('down_proj.bias') },
  };
}

export const gptOss: Family<GptOssConfig> = {
  modelType: 'gpt_oss',
  parseConfig,
  ...gqaMoeFamily(describe),
  eosIds: c => c.eos_token_id,
  controlStrings: [],
  chat: {
    format: 'harmony',
    stopTokens: ['<|return|>', '<|call|>', '<|endoftext|>'],
    thinking: { variable: null, leastEffort: 'low', efforts: { minimal: 'low', xhigh: 'high', max: 'high' } },
  },
};
