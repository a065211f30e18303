/**
 * Rotary positions in config.json: `rope_parameters` of newer files, or `rope_theta` with `rope_scaling` of older ones. Plain and
 * YaRN; any other type is refused by name.
 */

import { z } from 'zod';
import { inverseFrequencies, type Rope, yarnFrequencies, yarnScale } from '../layers/rope.ts';
import { type Issue, LIMITS, positive } from './config.ts';

const TYPES = ['default', 'yarn'] as const;
const TYPE_MESSAGE = `must be one of ${TYPES.join(', ')}: other rotary scalings are not supported`;

/** The base of the frequencies: they must fall. */
const theta = positive.min(1);

const scaling = z.object({
  rope_type: z.enum(TYPES, { message: TYPE_MESSAGE }).optional(),
  type: z.enum(TYPES, { message: TYPE_MESSAGE }).optional(),
  rope_theta: theta.optional(),
  partial_rotary_factor: positive.max(1).optional(),
  factor: positive.min(1).optional(),
  original_max_position_embeddings: positive.max(LIMITS.context).optional(),
  beta_fast: positive.default(32),
  beta_slow: positive.default(1),
  mscale: z.number().finite().nullish(),
  mscale_all_dim: z.number().finite().nullish(),
  attention_factor: positive.nullish(),
  truncate: z.boolean().default(true),
});

/** Fields to be spread into a family's schema. */
export const ropeFields = {
  rope_theta: theta.optional(),
  rope_scaling: scaling.nullish(),
  rope_parameters: scaling.nullish(),
  partial_rotary_factor: positive.max(1).optional(),
};

type Fields = z.output<z.ZodObject<typeof ropeFields>>;

export interface RopeConfig {
  readonly theta: number;
  /** Share of a head that is rotated. */
  readonly partial: number;
  readonly yarn: Scaling | null;
}

/** Throws nothing: relations are told to `issue`. */
export function ropeConfig(
  c: Fields,
  defaults: { readonly theta: number; readonly partial?: number },
  issue: Issue = () => {},
): RopeConfig {
  const key = c.rope_parameters ? 'rope_parameters' : 'rope_scaling';
  const given = c.rope_parameters ?? c.rope_scaling ?? null;
  const type = typeOf(given);
  if (given?.type && given.type !== type) issue(`${key}.type`, 'must be the same as rope_type');
  if (c.rope_parameters && c.rope_scaling && !sameScaling(c.rope_parameters, c.rope_scaling)) {
    issue('rope_scaling', 'must mean the same as rope_parameters');
  }
  if (type === 'default' && (given?.factor ?? 1) !== 1) issue(`${key}.rope_type`, 'must be given with a factor');
  if (type === 'yarn' && given?.factor === undefined) issue(`${key}.factor`, 'must be given for yarn');
  if (type === 'yarn' && given?.original_max_position_embeddings === undefined) {
    issue(`${key}.original_max_position_embeddings`, 'must be given for yarn');
  }
  return {
    theta: given?.rope_theta ?? c.rope_theta ?? defaults.theta,
    partial: given?.partial_rotary_factor ?? c.partial_rotary_factor ?? defaults.partial ?? 1,
    yarn: type === 'yarn' ? given : null,
  };
}

type Scaling = z.output<typeof scaling>;

function typeOf(given: Scaling | null): (typeof TYPES)[number] {
  return given?.rope_type ?? given?.type ?? 'default';
}

function sameScaling(a: Scaling, b: Scaling): boolean {
  return typeOf(a) === typeOf(b) && (a.factor ?? 1) === (b.factor ?? 1);
}

/** Frequencies for `rotaryDim` elements of a head, and the factor of cosines and sines, as transformers computes them. */
export function ropeOf({ theta, yarn }: RopeConfig, rotaryDim: number): Rope {
  if (yarn === null) return { frequencies: inverseFrequencies(theta, rotaryDim), attentionFactor: 1 };
  const factor = yarn.factor ?? 1;
  const frequencies = yarnFrequencies(theta, rotaryDim, {
    factor,
    originalContext: yarn.original_max_position_embeddings ?? 1,
    betaFast: yarn.beta_fast,
    betaSlow: yarn.beta_slow,
    truncate: yarn.truncate,
  });
  return { frequencies, attentionFactor: yarn.attention_factor ?? attentionFactor(factor, yarn) };
}

function attentionFactor(factor: number, { mscale, mscale_all_dim: all }: NonNullable<RopeConfig['yarn']>): number {
  return mscale && all ? yarnScale(factor, mscale) / yarnScale(factor, all) : yarnScale(factor);
}
