/** What the grammar worker may take, for those who plan memory. */

import { MIB } from '../common/units.ts';

/** The library without a vocabulary, and rules under way: 16 MiB at the start, 23 with the largest schemas seen. */
const HEAP_BASE_BYTES = 32 * MIB;
/** Vocabulary and masks, per token: every state of a grammar may have a bit for each. */
const HEAP_PER_TOKEN_BYTES = 1024;
/** JavaScript of the worker: the schema, its rules, and while it loads the spelling of each token. */
const SCRIPT_BASE_MIB = 48;
const SCRIPT_PER_TOKEN_BYTES = 512;

/** Ceiling of the library's own memory; a grammar that needs more fails. */
export function grammarHeapBytes(vocabSize: number): number {
  return HEAP_BASE_BYTES + vocabSize * HEAP_PER_TOKEN_BYTES;
}

/** Ceiling of the worker's JavaScript heap. */
export function grammarScriptMib(vocabSize: number): number {
  return SCRIPT_BASE_MIB + Math.ceil((vocabSize * SCRIPT_PER_TOKEN_BYTES) / MIB);
}

/**
 * What the worker takes with usual requests. Measured after 40 large schemas and one of 5,000 alternatives: 59 MiB with 4,096
 * tokens, 102 MiB with 151,936; a tenth more.
 */
export function grammarWorkerBytes(vocabSize: number): number {
  return 64 * MIB + vocabSize * 350;
}
