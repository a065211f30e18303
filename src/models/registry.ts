/** The families that can be run, by `model_type`. */

import { ConfigError } from '../common/errors.ts';
import { deepseekV2 } from './deepseek-v2.ts';
import { deepseekV3 } from './deepseek-v3.ts';
import type { Family } from './family.ts';
import { glmMoeDsa } from './glm-moe-dsa.ts';
import { glm4Moe } from './glm4-moe.ts';
import { gptOss } from './gpt-oss.ts';
import { minimaxM2 } from './minimax-m2.ts';
import { mixtral } from './mixtral.ts';
import { olmoe } from './olmoe.ts';
import { qwen35Moe, qwen35MoeText } from './qwen3-5-moe.ts';
import { qwen3Moe } from './qwen3-moe.ts';

const FAMILIES = [
  olmoe,
  qwen3Moe,
  mixtral,
  glm4Moe,
  minimaxM2,
  gptOss,
  qwen35Moe,
  qwen35MoeText,
  deepseekV2,
  deepseekV3,
  glmMoeDsa,
] as unknown as readonly Family[];

export const modelTypes: readonly string[] = FAMILIES.map(family => family.modelType);

/** The family of a config.json; throws ConfigError UNKNOWN_MODEL_TYPE with the list of known ones. */
export function familyOf(config: Readonly<Record<string, unknown>>): Family {
  const type = config.model_type;
  const family = FAMILIES.find(candidate => candidate.modelType === type);
  if (family) return family;
  const what = type === undefined ? 'has no model_type' : `has model_type ${JSON.stringify(type)?.slice(0, 80)}`;
  throw new ConfigError('UNKNOWN_MODEL_TYPE', `config.json ${what}; known: ${modelTypes.join(', ')}`, {
    hint: 'use a model of a known family',
    details: { path: 'model_type', known: modelTypes },
  });
}
