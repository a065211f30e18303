/**
 * Options and requests of programs that no compiler has checked: what is of a wrong type is refused by name, and never taken
 * for a default. Ranges that depend on the model are checked where the model is known.
 */

import { RequestError } from '../common/errors.ts';
import { shown } from '../common/shown.ts';
import { POLICY_CHOICES } from '../experts/policies/policies.ts';
import { KERNEL_CHOICES } from '../kernels/kernels.ts';
import type { EngineOptions, GenerateRequest, Prompt, ScoreRequest } from './api.ts';
import { checkIds } from './prompt-check.ts';

interface Rule {
  readonly accepts: (value: unknown) => boolean;
  readonly what: string;
}

type Rules<T> = { readonly [Field in keyof T]-?: Rule };

const isObject = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isBytes = (value: unknown) => typeof value === 'number' && value >= 0 && Number.isFinite(value);

const TEXT: Rule = { accepts: value => typeof value === 'string' && value !== '', what: 'a text that is not empty' };
const BOOLEAN: Rule = { accepts: value => typeof value === 'boolean', what: 'true or false' };
const NUMBER: Rule = { accepts: value => typeof value === 'number', what: 'a number' };
const WHOLE: Rule = { accepts: Number.isSafeInteger, what: 'a whole number' };
const COUNT: Rule = {
  accepts: value => Number.isSafeInteger(value) && Number(value) > 0,
  what: 'a whole number above 0',
};
const BYTES: Rule = { accepts: isBytes, what: 'a number of bytes' };
const SPEED: Rule = { accepts: isBytes, what: 'a number of GB/s' };
const OBJECT: Rule = { accepts: isObject, what: 'an object' };
const LIST: Rule = { accepts: Array.isArray, what: 'a list' };

function oneOf(...values: readonly string[]): Rule {
  return { accepts: value => values.includes(value as string), what: `one of ${values.join(', ')}` };
}

function listOf({ accepts, what }: Rule): Rule {
  return {
    accepts: value => Array.isArray(value) && value.every(accepts),
    what: `a list of values that are each ${what}`,
  };
}

const OPTIONS: Rules<EngineOptions> = {
  model: TEXT,
  // its fields are looked at where it is used
  plan: { accepts: value => TEXT.accepts(value) || (isObject(value) && 'version' in value), what: 'a file or a plan' },
  ram: { accepts: value => value === 'auto' || isBytes(value), what: 'auto or a number of bytes' },
  threads: NUMBER,
  context: NUMBER,
  kernels: oneOf(...KERNEL_CHOICES),
  prefetch: oneOf('off', 'auto', 'on'),
  expertSlots: WHOLE,
  expertShare: {
    accepts: value => typeof value === 'number' && value > 0 && value <= 1,
    what: 'a number above 0, up to 1',
  },
  activations: oneOf('int8', 'exact'),
  chunk: COUNT,
  readers: COUNT,
  io: oneOf('auto', 'direct', 'buffered'),
  mirrors: listOf(TEXT),
  driveSpeeds: listOf(SPEED),
  verify: BOOLEAN,
  slots: NUMBER,
  kv: oneOf('f32', 'bf16'),
  kvDir: TEXT,
  kvDirBytes: BYTES,
  constraints: BOOLEAN,
  mtp: BOOLEAN,
  usage: TEXT,
  trace: TEXT,
  policy: oneOf(...POLICY_CHOICES),
  scoredTokens: WHOLE,
  reserveBytes: BYTES,
};

/** Fields of the prompts; each is known by its first one. */
const PROMPTS: readonly Readonly<Record<string, Rule>>[] = [
  { ids: LIST },
  { text: { accepts: value => typeof value === 'string', what: 'a text' } },
  { messages: LIST, tools: LIST, variables: OBJECT, continueFinal: BOOLEAN },
];

/** Throws RequestError BAD_PARAMETER. */
export function checkOptions(options: EngineOptions): void {
  requireShape(options, OBJECT, 'the options');
  requireShape(options.model, TEXT, 'model');
  checkFields(options, OPTIONS);
}

/** The parts of a request, but its prompt, that nothing else looks at before they are used. Throws RequestError BAD_PARAMETER. */
export function checkRequest(request: GenerateRequest): void {
  requireShape(request, OBJECT, 'the request');
  checkFields(request, { ignoreEos: BOOLEAN, constraint: OBJECT, markers: LIST });
  const { constraint } = request;
  if (!constraint) return;
  requireShape(constraint.grammar, OBJECT, 'constraint.grammar');
  checkFields(constraint, { after: TEXT }, 'constraint.');
}

export function checkPromptShape(prompt: Prompt): void {
  requireShape(prompt, OBJECT, 'prompt');
  const fields = PROMPTS.find(rules => Object.keys(rules)[0] in prompt);
  if (!fields) {
    const hint = `give it as ${PROMPTS.map(rules => Object.keys(rules)[0]).join(', ')}`;
    throw new RequestError('BAD_PARAMETER', 'the prompt has none of its possible forms', { hint });
  }
  const [form] = Object.keys(fields);
  requireShape((prompt as Record<string, unknown>)[form], fields[form], `prompt.${form}`);
  checkFields(prompt, fields, 'prompt.');
}

/** Also throws BAD_TOKEN_ID. */
export function checkScoreRequest(request: ScoreRequest, vocabSize: number): void {
  requireShape(request, OBJECT, 'the request');
  requireShape(request.ids, LIST, 'ids');
  const { ids, next } = request;
  checkIds(next === undefined ? ids : [...ids, next], vocabSize);
}

/** Fields that are there; undefined means "the default". */
function checkFields(values: object, rules: Readonly<Record<string, Rule>>, path = ''): void {
  for (const [field, rule] of Object.entries(rules)) {
    const value = (values as Record<string, unknown>)[field];
    if (value !== undefined) requireShape(value, rule, path + field);
  }
}

function requireShape(value: unknown, { accepts, what }: Rule, name: string): void {
  if (accepts(value)) return;
  throw new RequestError('BAD_PARAMETER', `${name} must be ${what}, not ${shown(value)}`, {
    hint: 'see the types of the engine',
    details: { parameter: name },
  });
}
