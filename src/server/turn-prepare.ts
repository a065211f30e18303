/** Has the engine check a turn. With a form for the answer and a model that reasons, where the form begins depends on the prompt. */

import { RequestError } from '../common/errors.ts';
import type { ConstraintRequest, Engine, PreparedRequest, Prompt } from '../engine/api.ts';
import { partOf } from './turn-part.ts';
import type { AnswerStart, TurnPlan } from './turn-plan.ts';

export interface PreparedTurn {
  readonly prepared: PreparedRequest;
  readonly start: AnswerStart;
}

/** Tokens at the end of a prompt among which an opening tag is looked for: the tag and a few line breaks. */
const TAIL_TOKENS = 32;

/** Throws what the engine refuses about the request. What comes back must be run or discarded. */
export async function prepareTurn(engine: Engine, plan: TurnPlan, signal: AbortSignal): Promise<PreparedTurn> {
  const { prompt, grammar, grammarField, engineRequest, reasoning } = plan;
  if (grammar !== null && reasoning === null) {
    return { prepared: await prepareHeld(engine, plan, prompt, { grammar }, signal), start: PLAIN };
  }
  const prepared = await engine.prepare({ ...engineRequest, prompt }, signal);
  if (reasoning === null) return { prepared, start: PLAIN };
  if (grammar === null) return { prepared, start: await answerStart(engine, plan, prepared.promptIds) };
  const state = reasoningState(engine, plan, prepared.promptIds);

  const ids = [...prepared.promptIds];
  prepared.discard();
  const { begun = [] } = await answerStart(engine, plan, ids);
  if (begun.some(([, marker]) => marker !== undefined)) throw begunByTemplate(grammarField);
  const reasons = state === 'open' || (state === 'unknown' && plan.mayReason);
  // if it were left to the model to open the block, an answer without one would be held to nothing
  if (reasons && state !== 'open') ids.push(...(await openingIds(engine, reasoning.open, grammarField)));
  if (reasons && !engine.text.addedTokens.includes(reasoning.close)) throw noToken(reasoning.close, grammarField);
  const constraint = reasons ? { grammar, after: reasoning.close } : { grammar };
  const start = { ...(await answerStart(engine, plan, ids)), startsInReasoning: reasons };
  return { prepared: await prepareHeld(engine, plan, { ids }, constraint, signal), start };
}

const PLAIN: AnswerStart = { startsInReasoning: false };

/** Where the answer to a prompt begins. */
export async function answerStart(
  engine: Engine,
  plan: Pick<TurnPlan, 'prompt' | 'reasoning' | 'partMarker' | 'markers'>,
  promptIds: readonly number[],
): Promise<AnswerStart> {
  if (plan.reasoning === null) return PLAIN;
  if (plan.partMarker !== null) {
    return { startsInReasoning: false, begun: await partOf(engine, plan, promptIds) };
  }
  return { startsInReasoning: reasoningState(engine, plan, promptIds) === 'open' };
}

/** Codes of errors about a form: the engine does not know which field asked for it. */
const ABOUT_FORM = /SCHEMA|GRAMMAR|REGEX|UNSATISFIABLE/;

async function prepareHeld(
  engine: Engine,
  { engineRequest, grammarField }: TurnPlan,
  prompt: Prompt,
  constraint: ConstraintRequest,
  signal: AbortSignal,
): Promise<PreparedRequest> {
  try {
    return await engine.prepare({ ...engineRequest, prompt, constraint }, signal);
  } catch (error) {
    if (!(error instanceof RequestError) || !ABOUT_FORM.test(error.code)) throw error;
    const details = { parameter: grammarField, ...error.details };
    throw new RequestError(error.code, error.message, { hint: error.hint, details, cause: error });
  }
}

/** Whether the answer begins inside a block of reasoning, behind a closed one, or as the model likes. */
function reasoningState(
  engine: Engine,
  { prompt, reasoning }: Pick<TurnPlan, 'prompt' | 'reasoning'>,
  ids: readonly number[],
) {
  const { open, close } = reasoning!;
  if ('messages' in prompt && prompt.continueFinal) {
    const begun = prompt.messages.at(-1)?.content ?? '';
    return begun.lastIndexOf(open) > begun.lastIndexOf(close) ? 'open' : 'closed';
  }
  const bytes = ids.slice(-TAIL_TOKENS).map(id => engine.tokenBytes(id));
  const tail = Buffer.concat(bytes).toString().trimEnd();
  return tail.endsWith(open) ? 'open' : tail.endsWith(close) ? 'closed' : 'unknown';
}

/** The tokens that open the reasoning; the first one is a tag of its own. */
async function openingIds(engine: Engine, open: string, field: string): Promise<number[]> {
  const ids = await engine.encode({ text: open });
  // a tokenizer may put a token before every text
  const textOf = (id: number) => Buffer.from(engine.tokenBytes(id)).toString();
  const first = ids.findIndex(id => textOf(id).endsWith('>') && open.startsWith(textOf(id)));
  if (first < 0) throw noToken(open, field);
  return ids.slice(first);
}

function begunByTemplate(field: string): RequestError {
  const what =
    'the chat template of this model begins the answer itself, so a required form cannot stand at its beginning';
  return new RequestError('FORMAT_CONFLICT', what, { hint: `leave out ${field}`, details: { parameter: field } });
}

function noToken(tag: string, field: string): RequestError {
  return new RequestError(
    'FORMAT_AFTER_REASONING',
    `this model has no token ${tag}, so where its reasoning ends and the form of the answer begins cannot be told`,
    { hint: 'turn thinking off', details: { parameter: field } },
  );
}
