/** The ids that a tokenizer puts around a text by itself (a BOS token, usually). */

import { isJsonObject, jsonType } from '../formats/json.ts';
import { tokenizerFault } from './tokenizer-file.ts';

export interface Surroundings {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

const NOTHING: Surroundings = { before: [], after: [] };

/** `config` is the `post_processor` of tokenizer.json. */
export function readPostProcessor(config: unknown, path: (string | number)[] = ['post_processor']): Surroundings {
  if (config === null) return NOTHING;
  if (!isJsonObject(config))
    throw tokenizerFault('TOKENIZER_INVALID', path, `must be an object, not ${jsonType(config)}`);
  // Moves offsets only.
  if (config.type === 'ByteLevel') return NOTHING;
  if (config.type === 'Sequence' && Array.isArray(config.processors)) {
    // Each processor works on the output of the one before it.
    return config.processors
      .map((step, i) => readPostProcessor(step, [...path, 'processors', i]))
      .reduce(
        (inner, outer) => ({
          before: [...outer.before, ...inner.before],
          after: [...inner.after, ...outer.after],
        }),
        NOTHING,
      );
  }
  if (config.type === 'TemplateProcessing') return templateProcessing(config, path);
  throw tokenizerFault(
    'TOKENIZER_UNSUPPORTED',
    [...path, 'type'],
    `is ${JSON.stringify(config.type)}, which is not supported`,
  );
}

function templateProcessing(config: Record<string, unknown>, path: (string | number)[]): Surroundings {
  const before: number[] = [];
  const after: number[] = [];
  let seen = false;
  const single = config.single;
  if (!Array.isArray(single)) throw tokenizerFault('TOKENIZER_INVALID', [...path, 'single'], 'must be an array');
  single.forEach((item: unknown, i) => {
    if (isJsonObject(item) && isJsonObject(item.Sequence)) seen = true;
    else if (isJsonObject(item) && isJsonObject(item.SpecialToken)) {
      const specials = isJsonObject(config.special_tokens) ? config.special_tokens : {};
      const entry = specials[String(item.SpecialToken.id)];
      const ids = isJsonObject(entry) ? entry.ids : undefined;
      if (!Array.isArray(ids) || !ids.every(id => Number.isInteger(id) && id >= 0)) {
        throw tokenizerFault(
          'TOKENIZER_INVALID',
          [...path, 'single', i],
          'names a token that special_tokens does not define',
        );
      }
      (seen ? after : before).push(...ids);
    } else
      throw tokenizerFault('TOKENIZER_INVALID', [...path, 'single', i], 'is neither a Sequence nor a SpecialToken');
  });
  return { before, after };
}
