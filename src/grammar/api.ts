/** What an answer must look like, and how the engine learns which tokens may come next. Types and the shared words only. */

/** A JSON schema as it came: an object, or true / false. */
export type JsonSchema = boolean | { readonly [keyword: string]: unknown };

/** A language: every finished answer belongs to it, from its first byte to its last. */
export type GrammarSpec =
  | { readonly kind: 'json_schema'; readonly schema: JsonSchema }
  /** Any JSON object. */
  | { readonly kind: 'json_object' }
  /** A grammar in GBNF; its rule `root` is the answer. */
  | { readonly kind: 'gbnf'; readonly text: string }
  | { readonly kind: 'regex'; readonly pattern: string }
  | { readonly kind: 'literal'; readonly text: string }
  /** A special token, which no text can spell; its text where the tokenizer has no special token of that spelling. */
  | { readonly kind: 'token'; readonly text: string }
  /** One after the other. */
  | { readonly kind: 'sequence'; readonly parts: readonly GrammarSpec[] }
  /** One of them. */
  | { readonly kind: 'choice'; readonly options: readonly GrammarSpec[] }
  /** `item`, then any number of `separator item`. */
  | { readonly kind: 'repeat'; readonly item: GrammarSpec; readonly separator: string };

/**
 * What a request carries to the engine: shared words, in which the engine writes the ids it has chosen and the grammar worker
 * which ids may follow. The worker's state is a function of those ids, so it can be replaced at any time.
 *
 *   words[COUNT]   ids chosen so far (engine)         words[READY]   the mask is that after so many ids (worker)
 *   words[STATUS]  see below (worker and main thread)  words[IDS ..]  the ids (engine), then the mask (worker)
 *
 * The engine stores an id, then COUNT, then adds 1 to doorbell[0] and notifies it; it waits on words[READY]. Whoever sets READY or
 * STATUS notifies words[READY]. A smaller COUNT takes ids back; the engine waits for its READY before it adds others. READY is -1 until
 * there is a first mask.
 */
export interface ConstraintChannel {
  readonly words: Int32Array;
  readonly doorbell: Int32Array;
  /** Room for so many ids. */
  readonly maxTokens: number;
  /** Bits of the mask: id i may come next when bit i % 32 of mask word i >> 5 is set. */
  readonly vocabSize: number;
}

export const COUNT = 0;
export const READY = 1;
export const STATUS = 2;
export const IDS = 16;

/** Words of STATUS. Anything but RUNNING ends the request. */
export const RUNNING = 0;
/** A mask took longer than its limit. */
export const TIMED_OUT = 1;
/** The grammar library failed on this request. */
export const CRASHED = 2;
/** The service was closed. */
export const CLOSED = 3;

export function channelWords(maxTokens: number, vocabSize: number): number {
  return IDS + maxTokens + maskWords(vocabSize);
}

export function maskWords(vocabSize: number): number {
  return (vocabSize + 31) >> 5;
}

/** First word of the mask. */
export function maskAt({ maxTokens }: Pick<ConstraintChannel, 'maxTokens'>): number {
  return IDS + maxTokens;
}

/** A compiled constraint of one request. */
export interface Constraint {
  readonly channel: ConstraintChannel;
  /** Forgets it; the channel must not be used any more. */
  release(): void;
}
