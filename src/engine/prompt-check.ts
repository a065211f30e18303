/** What a prompt must be before anything is computed. */

import { RequestError } from '../common/errors.ts';
import type { EngineInfo, Prompt } from './api.ts';

/** Texts up to this size are always tokenised: a refusal then names the exact number of tokens. */
const COUNTED_CHARACTERS = 65_536;

/** Deeper than any request that is accepted. */
const MAX_DEPTH = 200;

type Limits = Pick<EngineInfo, 'context' | 'maxContext' | 'vocabSize'>;

function whatHelps({ context, maxContext }: Limits): string {
  return `shorten the prompt${context < maxContext ? ' or use a larger --ctx' : '; this model takes no larger context'}`;
}

/** Room left for the answer, in tokens. Throws when the prompt is empty, too long or has impossible ids. */
export function checkPrompt(ids: readonly number[], limits: Limits): number {
  const { context, vocabSize } = limits;
  if (ids.length === 0) {
    throw new RequestError('EMPTY_PROMPT', 'the prompt has no tokens', { hint: 'give some text' });
  }
  checkIds(ids, vocabSize);
  if (ids.length >= context) {
    throw new RequestError(
      'CONTEXT_EXCEEDED',
      `the prompt has ${ids.length} tokens; the context of ${context} leaves no room for an answer`,
      { hint: whatHelps(limits), details: { promptTokens: ids.length, context } },
    );
  }
  return context - ids.length;
}

/** Throws BAD_TOKEN_ID for the first that the model has not. */
export function checkIds(ids: readonly number[], vocabSize: number): void {
  const at = ids.findIndex(id => !Number.isInteger(id) || id < 0 || id >= vocabSize);
  if (at < 0) return;
  throw new RequestError('BAD_TOKEN_ID', `token id ${String(ids[at])} is not in 0..${vocabSize - 1}`, {
    hint: "give ids of this model's own tokenizer",
    details: { id: ids[at] },
  });
}

/**
 * A text that cannot fit the context even in the longest tokens is refused before it is tokenised, which would take a
 * hundred times its size in memory. `longestToken`: bytes.
 */
export function refuseHugeText(prompt: Prompt, limits: Limits, longestToken: number): void {
  if ('ids' in prompt) return;
  const characters = 'text' in prompt ? prompt.text.length : charactersOf([prompt.messages, prompt.tools]);
  const most = limits.context * longestToken;
  if (characters <= Math.max(most, COUNTED_CHARACTERS)) return;
  throw new RequestError(
    'CONTEXT_EXCEEDED',
    `the prompt has ${characters} characters; a context of ${limits.context} tokens holds less than ${most}`,
    { hint: whatHelps(limits), details: { characters, context: limits.context } },
  );
}

/** Characters of all strings in a piece of JSON, names of fields left out. What is nested deeper is refused by the text worker. */
function charactersOf(value: unknown, depth = 0): number {
  if (typeof value === 'string') return value.length;
  if (typeof value !== 'object' || value === null || depth > MAX_DEPTH) return 0;
  return Object.values(value).reduce<number>((sum, item) => sum + charactersOf(item, depth + 1), 0);
}
