/** For tests: the engine's side of constraints, and answers sampled under the masks, at random but always the same. */

import { Ajv } from 'ajv';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { buildTokenBytes, type TokenBytes } from '../tokenizer/token-bytes.ts';
import { readTokenizerFile } from '../tokenizer/tokenizer-file.ts';
import { type Compiled, GrammarLibrary, type Matcher, type Vocabulary } from './adapter.ts';
import {
  COUNT,
  type Constraint,
  type GrammarSpec,
  IDS,
  type JsonSchema,
  maskAt,
  maskWords,
  READY,
  RUNNING,
  STATUS,
} from './api.ts';
import { lowerSpec } from './lower.ts';

/** Every byte is a token; 256 is <stop>, 257 another special token, and there are ids without a token. */
export const BYTES: Vocabulary = { tokenBytes: byteTokens(), vocabSize: 300, stopIds: [256] };
export const STOP = 256;

export function nanoVocabulary(): Vocabulary {
  const tokenBytes = buildTokenBytes(readTokenizerFile('models/nano'));
  const stop = tokenBytes.special.indexOf(1);
  return { tokenBytes, vocabSize: tokenBytes.special.length + 40, stopIds: [stop] };
}

function byteTokens(): TokenBytes {
  const words = [
    ...Array.from({ length: 256 }, (_, byte) => [byte]),
    [...Buffer.from('<stop>')],
    [...Buffer.from('<pad>')],
  ];
  const bytes = new Uint8Array(new SharedArrayBuffer(words.flat().length));
  const offsets = new Uint32Array(new SharedArrayBuffer((words.length + 1) * 4));
  const special = new Uint8Array(new SharedArrayBuffer(words.length));
  for (const [id, word] of words.entries()) {
    bytes.set(word, offsets[id]);
    offsets[id + 1] = offsets[id] + word.length;
  }
  special.fill(1, 256);
  return { bytes, offsets, special, dropsLeadingSpace: false };
}

export function textOf(ids: readonly number[], { tokenBytes, stopIds }: Vocabulary): string {
  const { bytes, offsets } = tokenBytes;
  const parts = ids.filter(id => !stopIds.includes(id)).map(id => bytes.slice(offsets[id], offsets[id + 1]));
  return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.concat(parts));
}

export function allowedIds(mask: Int32Array): number[] {
  const ids: number[] = [];
  for (const [word, bits] of mask.entries()) {
    for (let bit = 0; bit < 32; bit++) if ((bits >>> bit) & 1) ids.push(word * 32 + bit);
  }
  return ids;
}

/** Numbers in [0, 1), always the same for a seed. */
export function randomNumbers(seed: number): () => number {
  let state = seed * 2654435761 + 1;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    return (state >>> 0) / 2 ** 32;
  };
}

/** The engine's end of a channel. */
export class Client {
  readonly #constraint: Constraint;
  readonly ids: number[] = [];

  constructor(constraint: Constraint) {
    this.#constraint = constraint;
  }

  get status(): number {
    return Atomics.load(this.#constraint.channel.words, STATUS);
  }

  /** Ids that may come next, or null once the constraint has failed. */
  async allowed(): Promise<number[] | null> {
    const { channel } = this.#constraint;
    const { words } = channel;
    while (this.status === RUNNING) {
      const ready = Atomics.load(words, READY);
      if (ready === this.ids.length) {
        const first = maskAt(channel);
        return allowedIds(words.subarray(first, first + maskWords(channel.vocabSize)));
      }
      // A failure between the look and the wait notifies nobody.
      const wait = Atomics.waitAsync(words, READY, ready, 100);
      if (wait.async) await wait.value;
    }
    return null;
  }

  accept(id: number): void {
    const { words, doorbell } = this.#constraint.channel;
    words[IDS + this.ids.length] = id;
    this.ids.push(id);
    Atomics.store(words, COUNT, this.ids.length);
    Atomics.add(doorbell, 0, 1);
    Atomics.notify(doorbell, 0);
  }

  takeBack(count: number): void {
    const { words, doorbell } = this.#constraint.channel;
    this.ids.length -= count;
    Atomics.store(words, COUNT, this.ids.length);
    Atomics.add(doorbell, 0, 1);
    Atomics.notify(doorbell, 0);
  }

  release(): void {
    this.#constraint.release();
  }
}

let library: GrammarLibrary | undefined;
/** The last one: tests ask many things of the same grammar. */
let compiled: { text: string; grammar: Compiled } | undefined;

/** At the start of a language of BYTES, on this thread. */
export async function matcher(spec: GrammarSpec): Promise<Matcher> {
  library ??= await GrammarLibrary.load(BYTES, 512 * 2 ** 20);
  const text = lowerSpec(spec);
  if (compiled?.text !== text) {
    compiled?.grammar.dispose();
    compiled = { text, grammar: await library.compile(text) };
  }
  return compiled.grammar.matcher();
}

/** Bytes that end something come more often, or random answers would be endless. */
const ENDINGS = new Set([...Buffer.from('"}]')]);
const MOST_TOKENS = 1500;

/** A random answer; null when it did not end. */
export async function sample(at: Matcher, random: () => number, ids: number[] = []): Promise<string | null> {
  const mask = new Int32Array(maskWords(BYTES.vocabSize));
  while (ids.length < MOST_TOKENS) {
    if (!(await at.mask(mask))) throw new Error('a dead end');
    const allowed = allowedIds(mask);
    const endings = allowed.filter(id => ENDINGS.has(id));
    const hurry = endings.length > 0 && random() < 0.2 + ids.length / 300;
    const from = hurry ? endings : allowed;
    const id = allowed.includes(STOP) && random() < 0.4 ? STOP : from[Math.floor(random() * from.length)];
    if (!at.accept(id)) throw new Error(`${id} is in the mask and not accepted`);
    ids.push(id);
    if (id === STOP) return textOf(ids, BYTES);
  }
  return null;
}

/** Whether a text, whole, is in the language. */
export async function accepts(spec: GrammarSpec, text: string): Promise<boolean> {
  const at = await matcher(spec);
  try {
    for (const byte of Buffer.from(text)) if (!at.accept(byte)) return false;
    const mask = new Int32Array(maskWords(BYTES.vocabSize));
    await at.mask(mask);
    return allowedIds(mask).includes(STOP);
  } finally {
    at.dispose();
  }
}

/** Random answers to a schema, those that ended. */
export async function sampleTexts(schema: JsonSchema, samples: number): Promise<string[]> {
  const at = await matcher({ kind: 'json_schema', schema });
  const texts: string[] = [];
  for (let seed = 0; seed < samples; seed++) {
    const ids: number[] = [];
    const text = await sample(at, randomNumbers(seed), ids);
    at.rollback(ids.length);
    if (text !== null) texts.push(text);
  }
  at.dispose();
  return texts;
}

/** Samples answers to a schema and holds them against an independent validator; returns those that ended. */
export async function sampleValid(schema: JsonSchema, samples = 6): Promise<unknown[]> {
  const before2020 = typeof schema !== 'boolean' && String(schema.$schema).includes('draft-07');
  const ajv = new (before2020 ? Ajv : Ajv2020)({ strict: false, validateFormats: false });
  const validate = ajv.compile(schema);
  return (await sampleTexts(schema, samples)).map(text => {
    const value: unknown = JSON.parse(text);
    if (!validate(value)) throw new Error(`${text} is not valid: ${ajv.errorsText(validate.errors)}`);
    return value;
  });
}

export function refusal(spec: GrammarSpec): { code: string; message: string; details: Record<string, unknown> } | null {
  try {
    lowerSpec(spec);
  } catch (error) {
    return error as { code: string; message: string; details: Record<string, unknown> };
  }
  return null;
}

export const schemaSpec = (schema: JsonSchema): GrammarSpec => ({ kind: 'json_schema', schema });
