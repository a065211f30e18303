/** Normalisers of @huggingface/tokenizers, restricted to those that do exactly what the original does. */

import { TokenizerError } from '../common/errors.ts';
import { isJsonObject, jsonType } from '../formats/json.ts';
import { HfTokenizer } from './hf-library.ts';
import { inexactRegexConstruct } from './regex-check.ts';
import { tokenizerFault } from './tokenizer-file.ts';

export type Normalizer = (text: string) => string;

/** Sequences hold sequences; real ones are one deep. */
const MAX_SEQUENCE_DEPTH = 8;
/** NFKD makes 18 characters of one and published replacements none; steps that multiply each other would fill the memory. */
export const MAX_NORMALIZED_GROWTH = 32;
/** Room for what is prepended to a short text. */
const MAX_NORMALIZED_EXTRA_CHARACTERS = 1024;
/** Published replacements have one character. A long one could pass every bound inside a single step. */
export const MAX_REPLACEMENT_CHARACTERS = 64;
const EXACT = new Set(['NFC', 'NFD', 'NFKC', 'NFKD', 'Lowercase', 'Strip', 'Prepend', 'Replace']);

/**
 * `whole` normalises a text from its start; `continuation` one that was cut from the text before it, so nothing is
 * prepended.
 */
export function buildNormalizer(config: unknown): { whole: Normalizer; continuation: Normalizer } {
  const steps = flatten(config, ['normalizer'], 0);
  return { whole: compose(steps), continuation: compose(steps.filter(step => step.type !== 'Prepend')) };
}

function flatten(config: unknown, path: (string | number)[], depth: number): Record<string, unknown>[] {
  if (config === null) return [];
  if (!isJsonObject(config))
    throw tokenizerFault('TOKENIZER_INVALID', path, `must be an object, not ${jsonType(config)}`);
  if (config.type === 'Sequence' && Array.isArray(config.normalizers) && depth < MAX_SEQUENCE_DEPTH) {
    return config.normalizers.flatMap((step, i) => flatten(step, [...path, 'normalizers', i], depth + 1));
  }
  // In JavaScript's replaceAll a "$" in the content would be a pattern.
  const dollar = config.type === 'Replace' && String(config.content).includes('$');
  if (typeof config.type !== 'string' || !EXACT.has(config.type) || dollar) {
    throw tokenizerFault('TOKENIZER_UNSUPPORTED', path, `is ${JSON.stringify(config)}, which is not supported`);
  }
  const regex = isJsonObject(config.pattern) ? config.pattern.Regex : undefined;
  const inexact = typeof regex === 'string' ? inexactRegexConstruct(regex) : null;
  if (inexact)
    throw tokenizerFault('TOKENIZER_UNSUPPORTED', [...path, 'pattern'], `has ${inexact}, which is not supported`);
  for (const field of ['content', 'prepend']) {
    const text = config[field];
    if (typeof text !== 'string' || text.length <= MAX_REPLACEMENT_CHARACTERS) continue;
    const what = `has ${text.length} characters; at most ${MAX_REPLACEMENT_CHARACTERS} are supported`;
    throw tokenizerFault('TOKENIZER_UNSUPPORTED', [...path, field], what);
  }
  return [config];
}

function compose(steps: Record<string, unknown>[]): Normalizer {
  const built = steps.map(buildStep);
  return text => {
    const most = text.length * MAX_NORMALIZED_GROWTH + MAX_NORMALIZED_EXTRA_CHARACTERS;
    let normal = text;
    for (const step of built) {
      if (normal === '') break;
      normal = step(normal, most);
    }
    return normal;
  };
}

/** One step, which fails when its result is longer than `most`. */
function buildStep(config: Record<string, unknown>): (text: string, most: number) => string {
  const library = new HfTokenizer(
    {
      normalizer: config,
      pre_tokenizer: null,
      model: { type: 'BPE', vocab: {}, merges: [] },
      post_processor: null,
      decoder: null,
      added_tokens: [],
    },
    {},
  );
  const normalizer = library.normalizer!;
  return (text, most) => {
    let normal: string | null = null;
    try {
      normal = normalizer.normalize(text);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error; // longer than any string
    }
    if (normal !== null && normal.length <= most) return normal;
    throw new TokenizerError(
      'TOKENIZER_GROWTH',
      `the normalizer (${config.type}) makes a text far longer than it was`,
      {
        hint: `tokenizer.json is broken or hostile: texts may grow ${MAX_NORMALIZED_GROWTH} times`,
        details: { file: 'tokenizer.json', path: '$.normalizer', limit: most },
      },
    );
  };
}
