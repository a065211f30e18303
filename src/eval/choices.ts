/**
 * Multiple-choice tasks by log-likelihood, as lm-evaluation-harness scores them: the choice whose tokens are likeliest after the
 * context is the model's answer; `normalised` divides by the bytes of the choice first.
 */

import { z } from 'zod';
import { ModelFileError } from '../common/errors.ts';
import type { Engine } from '../engine/api.ts';
import { type Interval, shareInterval } from './statistics.ts';

/** Published tasks have up to a few thousand bytes in a line. */
const MAX_CONTEXT_CHARACTERS = 2 ** 20;
/** Published tasks have up to ten. */
const MAX_CHOICES = 64;

const questionSchema = z
  .object({
    ctx: z.string().max(MAX_CONTEXT_CHARACTERS),
    choices: z.array(z.string().min(1).max(MAX_CONTEXT_CHARACTERS)).min(2).max(MAX_CHOICES),
    gold: z.number().int().min(0),
  })
  .refine(({ choices, gold }) => gold < choices.length, { path: ['gold'], message: 'must be the number of a choice' });

export type Question = z.infer<typeof questionSchema>;

export interface ChoicesReport {
  readonly questions: number;
  readonly correct: number;
  readonly accuracy: number;
  readonly interval: Interval;
  /** The same with log-likelihoods per byte. */
  readonly normalised: { readonly correct: number; readonly accuracy: number; readonly interval: Interval };
}

/** One question per line of JSON; empty lines are skipped. Throws BAD_TASK naming the line. */
export function parseQuestions(text: string, file: string): Question[] {
  const questions: Question[] = [];
  for (const [i, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    questions.push(parseQuestion(line, `${file}:${i + 1}`));
  }
  return questions;
}

function parseQuestion(line: string, place: string): Question {
  let value: unknown;
  try {
    value = JSON.parse(line);
  } catch (cause) {
    throw badTask(`${place}: not JSON`, place, cause);
  }
  const parsed = questionSchema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw badTask(`${place}: ${issue.path.join('.') || 'the line'}: ${issue.message}`, place);
}

function badTask(message: string, place: string, cause?: unknown): ModelFileError {
  return new ModelFileError('BAD_TASK', message, {
    hint: 'each line is {"ctx": "...", "choices": ["...", "..."], "gold": 0}',
    details: { place },
    cause,
  });
}

export async function evalChoices(
  engine: Engine,
  questions: readonly Question[],
  onProgress: (done: number, total: number) => void = () => {},
): Promise<ChoicesReport> {
  let correct = 0;
  let normalisedCorrect = 0;
  for (const [i, { ctx, choices, gold }] of questions.entries()) {
    const scores: number[] = [];
    for (const choice of choices) scores.push(await logLikelihood(engine, ctx, choice));
    if (argmax(scores) === gold) correct++;
    if (argmax(scores.map((score, c) => score / Buffer.byteLength(choices[c]))) === gold) normalisedCorrect++;
    onProgress(i + 1, questions.length);
  }
  const figures = (hits: number) => ({
    correct: hits,
    accuracy: hits / questions.length,
    interval: shareInterval(hits, questions.length),
  });
  return { questions: questions.length, ...figures(correct), normalised: figures(normalisedCorrect) };
}

/** Sum of the log-probabilities of the tokens of `choice` after `ctx`; one space stands between them unless one is there. */
async function logLikelihood(engine: Engine, ctx: string, choice: string): Promise<number> {
  // spaces before a word belong to its token
  const context = ctx.trimEnd();
  const space = /^\s/.test(choice) || context === '' ? '' : ctx.slice(context.length) || ' ';
  const known = context === '' ? 0 : (await engine.encode({ text: context })).length;
  const ids = await engine.encode({ text: context + space + choice });
  const { nll } = await engine.score({ ids: ids.slice(0, -1), next: ids.at(-1), nll: true });
  let sum = 0;
  // nothing predicts the first token of all
  for (let i = Math.max(known, 1); i < ids.length; i++) sum -= nll![i - 1];
  return sum;
}

function argmax(values: readonly number[]): number {
  return values.reduce((best, value, i) => (value > values[best] ? i : best), 0);
}
