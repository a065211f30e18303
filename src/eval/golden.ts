/**
 * The evaluation folder of a published model: texts with the perplexities that an independent implementation measured
 * (eval.json and one DOMAIN.txt each) and its greedy continuations (samples.json).
 */

import { join } from 'node:path';
import { z } from 'zod';
import { ModelFileError } from '../common/errors.ts';
import { readSmallFile } from '../formats/files.ts';
import { readJsonObject } from '../formats/json.ts';

/** Real ones have 16 kB and 200 kB. */
const MAX_EVAL_JSON_BYTES = 16 * 2 ** 20;
/** Real ones have 25 kB; a text is tokenised as a whole. */
const MAX_TEXT_BYTES = 16 * 2 ** 20;

const ids = z.array(z.number().int().nonnegative()).min(1);

const domainSchema = z.object({
  ppl: z.number().positive(),
  nll: z.number(),
  tokens: z.number().int().positive(),
  predicted_tokens: z.number().int().positive(),
  first_ids: ids,
});

const evalSchema = z.object({
  context: z.number().int().positive(),
  stride: z.number().int().positive(),
  /** Figures over several domains are named ALL_something and have no text of their own. */
  domains: z
    .record(z.string().regex(/^\w+$/), z.unknown())
    .transform(all => Object.fromEntries(Object.entries(all).filter(([name]) => !name.startsWith('ALL_'))))
    .pipe(z.record(z.string(), domainSchema)),
});

const samplesSchema = z.object({
  samples: z
    .array(
      z.object({
        prompt: z.string(),
        prompt_ids: ids,
        greedy_ids: ids,
        /** Index of the first stop id, where the answer ends; null when there is none. */
        stop_at: z.number().int().nonnegative().nullable(),
        /** Per step the best tokens and their logits, best first. */
        top5: z.array(z.array(z.tuple([z.number().int(), z.number()])).min(2)),
      }),
    )
    .min(1),
});

export type GoldenDomain = z.infer<typeof domainSchema> & { readonly name: string };
export type GoldenSample = z.infer<typeof samplesSchema>['samples'][number];

export interface GoldenDomains {
  /** Predictions per window. */
  readonly window: number;
  readonly domains: readonly GoldenDomain[];
}

export function readGoldenDomains(directory: string): GoldenDomains {
  const path = join(directory, 'eval.json');
  const { context, stride, domains } = parse(evalSchema, path);
  if (context !== stride) {
    throw new ModelFileError('BAD_EVAL_SET', `${path}: stride ${stride} with context ${context}; they must be equal`, {
      hint: 'windows that overlap are not supported',
    });
  }
  return { window: context, domains: Object.entries(domains).map(([name, domain]) => ({ name, ...domain })) };
}

/** The text of a domain, byte for byte. */
export function readGoldenText(directory: string, domain: string): string {
  const bytes = readSmallFile(join(directory, `${domain}.txt`), MAX_TEXT_BYTES);
  return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
}

export function readGoldenSamples(directory: string): readonly GoldenSample[] {
  const path = join(directory, 'samples.json');
  const { samples } = parse(samplesSchema, path);
  for (const [i, { greedy_ids, top5 }] of samples.entries()) {
    if (top5.length === greedy_ids.length) continue;
    throw new ModelFileError('BAD_EVAL_SET', `${path}: sample ${i} has ${top5.length} top5 rows, not one per token`);
  }
  return samples;
}

function parse<T extends z.ZodType>(schema: T, path: string): z.infer<T> {
  const parsed = schema.safeParse(readJsonObject(path, MAX_EVAL_JSON_BYTES));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new ModelFileError('BAD_EVAL_SET', `${path}: ${issue.path.join('.')}: ${issue.message}`, {
    hint: 'an evaluation folder has eval.json, samples.json and one text per domain',
    details: { path: issue.path.join('.') },
  });
}
