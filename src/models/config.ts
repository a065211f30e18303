/** Building blocks of family config schemas, and one way to report what is wrong in a config.json. */

import { z } from 'zod';
import { ConfigError } from '../common/errors.ts';
import { MAX_EXPERT_GROUPS } from '../layers/router.ts';

/** Published models list one to three end tokens; beyond this it is not a list of stops. */
const MAX_EOS_IDS = 64;

/**
 * Sanity limits, above everything published in any family, so that a hostile file cannot make tables of absurd length. The size of
 * any one matrix stays an exact integer. What a model really costs is the plan's business.
 */
export const LIMITS = {
  /** hidden_size, widths of MLPs and experts; the widest published models have 53,248. */
  width: 65536,
  /** Published models have fewer than 130; each layer costs a list of tensor names before any weight is looked for. */
  layers: 1024,
  /** Published models have up to 128 heads. */
  heads: 1024,
  /** Elements of a head; published models have up to 576. */
  headDim: 8192,
  /** Of one layer; published models have a few hundred. */
  experts: 4096,
  /** The largest published vocabulary has about 260,000 tokens. */
  vocabulary: 2 ** 24,
  /** The longest published contexts have 10 million positions. Above 2^24 float32, in which angles are made, cannot count them. */
  context: 2 ** 24,
} as const;

/** A positive integer with a sanity limit, so that a hostile config cannot ask for absurd allocations. */
export const count = (max: number) => z.number().int().min(1).max(max);

/** Tells what is wrong with a field. */
export type Issue = (path: string, message: string) => void;

export function checkExperts(topK: number, experts: number, issue: Issue): void {
  if (topK > experts) issue('num_experts_per_tok', `must not exceed the number of experts, ${experts}`);
}

/** Of models whose first layers are dense. */
export function checkDenseLayers(
  c: { readonly first_k_dense_replace: number; readonly num_hidden_layers: number },
  issue: Issue,
): void {
  if (c.first_k_dense_replace >= c.num_hidden_layers) issue('first_k_dense_replace', 'must leave layers with experts');
}

/** Groups of experts as topK needs them: of equal size, two experts or more in each, and enough of them kept. */
export function checkGroups(
  c: { readonly n_group: number; readonly topk_group: number },
  experts: number,
  topK: number,
  issue: Issue,
): void {
  if (c.n_group > MAX_EXPERT_GROUPS) issue('n_group', `must not exceed ${MAX_EXPERT_GROUPS}`);
  if (experts % c.n_group !== 0) issue('n_group', 'must divide n_routed_experts');
  if (c.n_group > 1 && experts < 2 * c.n_group) issue('n_group', 'must leave two experts or more in a group');
  if (c.topk_group > c.n_group) issue('topk_group', 'must not exceed n_group');
  if ((experts / c.n_group) * c.topk_group < topK) {
    issue('topk_group', 'must leave at least num_experts_per_tok experts');
  }
}

export const positive = z.number().positive().finite();

/** Added to a mean square before its root; published ones are 1e-6 and 1e-5. Beyond this a norm would hide what it is given. */
export const epsilon = positive.max(1);

/** One id, several, or none -> a list. */
export const eosField = z
  .union([z.number().int().min(0), z.array(z.number().int().min(0)).max(MAX_EOS_IDS), z.null()])
  .optional()
  .transform(value => (value === undefined || value === null ? [] : Array.isArray(value) ? value : [value]));

/**
 * Parses the known fields of config.json (unknown ones are left alone) and checks relations between them.
 * Throws ConfigError BAD_CONFIG naming the path of the first wrong field and counting the others.
 */
export function parseFields<S extends z.ZodType>(
  modelType: string,
  schema: S,
  raw: Readonly<Record<string, unknown>>,
  relate: (config: z.output<S>, issue: Issue) => void,
): z.output<S> {
  const problems: { path: string; message: string }[] = [];
  const result = schema.safeParse(raw);
  if (result.success) relate(result.data, (path, message) => problems.push({ path, message }));
  else for (const { path, message } of result.error.issues) problems.push({ path: path.join('.'), message });
  if (problems.length === 0) return result.data as z.output<S>;
  const [{ path, message }] = problems;
  const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : '';
  const value = valueAt(raw, path);
  const got = value === undefined ? ', it is missing' : `, got ${JSON.stringify(value).slice(0, 80)}`;
  throw new ConfigError('BAD_CONFIG', `config.json: ${path}: ${message}${got}${more}`, {
    hint: `compare with the config.json of a published ${modelType} model`,
    details: { path, problems },
  });
}

/**
 * As `parseFields`, for models whose files have the fields of the language model at the root (text only) or in `text_config`. Whether
 * the output matrix is the embedding may then stand in either place.
 */
export function parseTextFields<S extends z.ZodType>(
  modelType: string,
  schema: S,
  raw: Readonly<Record<string, unknown>>,
  relate: (config: z.output<S>, issue: Issue) => void,
): z.output<S> {
  const { text_config: text, tie_word_embeddings: tied } = raw;
  if (text === undefined) return parseFields(modelType, schema, raw, relate);
  const nested = z.object({ text_config: schema }) as unknown as z.ZodType<{ text_config: z.output<S> }>;
  const inside = isRecord(text) && tied !== undefined ? { tie_word_embeddings: tied, ...text } : text;
  const parsed = parseFields(modelType, nested, { ...raw, text_config: inside }, (config, issue) => {
    relate(config.text_config, (path, message) => issue(`text_config.${path}`, message));
    if (isRecord(inside) && tied !== undefined && inside.tie_word_embeddings !== tied) {
      issue('tie_word_embeddings', 'must not differ from that of text_config');
    }
  });
  return parsed.text_config;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** "rope_parameters.rope_theta" -> the value there. */
function valueAt(raw: unknown, path: string): unknown {
  return path.split('.').reduce((value: unknown, key) => (value as Record<string, unknown> | null)?.[key], raw);
}
