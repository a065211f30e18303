/** Normalisers of @huggingface/tokenizers, restricted to those that do exactly what the original does. */

import { isJsonObject, jsonType } from '../formats/json.ts';
import { HfTokenizer } from './hf-library.ts';
import { tokenizerFault } from './tokenizer-file.ts';

export type Normalizer = (text: string) => string;

/** Sequences hold sequences; real ones are one deep. */
const MAX_SEQUENCE_DEPTH = 8;
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
  return [config];
}

function compose(steps: Record<string, unknown>[]): Normalizer {
  if (steps.length === 0) return text => text;
  const library = new HfTokenizer(
    {
      normalizer: { type: 'Sequence', normalizers: steps },
      pre_tokenizer: null,
      model: { type: 'BPE', vocab: {}, merges: [] },
      post_processor: null,
      decoder: null,
      added_tokens: [],
    },
    {},
  );
  const normalizer = library.normalizer!;
  return text => (text === '' ? '' : normalizer.normalize(text));
}
