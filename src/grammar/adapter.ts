/**
 * The one file that knows the grammar library (@mlc-ai/web-xgrammar). It is meant for a worker of its own: loading it changes
 * globals, everything bad ends in an abort inside WebAssembly, and after one the instance must not be used any more.
 */

import { createRequire } from 'node:module';
import type { CompiledGrammar, GrammarCompiler, GrammarMatcher } from '@mlc-ai/web-xgrammar';
import { spellBytes } from '../tokenizer/byte-level.ts';
import type { TokenBytes } from '../tokenizer/token-bytes.ts';
import { maskWords } from './api.ts';
import { SpecialTokens } from './special-tokens.ts';

type Library = typeof import('@mlc-ai/web-xgrammar');

const WASM_PAGE_BYTES = 65536;

/** What the languages are made of. Ids from the end of `tokenBytes` up to vocabSize are never allowed. */
export interface Vocabulary {
  readonly tokenBytes: TokenBytes;
  readonly vocabSize: number;
  readonly stopIds: readonly number[];
}

export class GrammarLibrary {
  readonly #library: Library;
  readonly #compiler: GrammarCompiler;
  readonly #vocabulary: Vocabulary;
  readonly specialTokens: SpecialTokens;
  readonly #memory: WasmMemory;

  private constructor(
    library: Library,
    compiler: GrammarCompiler,
    vocabulary: Vocabulary,
    specialTokens: SpecialTokens,
    memory: WasmMemory,
  ) {
    this.#library = library;
    this.#compiler = compiler;
    this.#vocabulary = vocabulary;
    this.specialTokens = specialTokens;
    this.#memory = memory;
  }

  /** Takes some 0.2 s, with 150,000 tokens up to a second. `heapBytes`: more makes the library abort. */
  static async load(vocabulary: Vocabulary, heapBytes: number): Promise<GrammarLibrary> {
    const catching = catchMemory(heapBytes);
    const library = await importLibrary();
    const specialTokens = new SpecialTokens(vocabulary);
    const info = await library.TokenizerInfo.createTokenizerInfo(
      spellings(vocabulary, specialTokens),
      'byte_level',
      false,
      vocabulary.vocabSize,
      [...vocabulary.stopIds],
    );
    // Its own cache cannot be bounded.
    const compiler = await library.GrammarCompiler.createGrammarCompiler(info, false);
    return new GrammarLibrary(library, compiler, vocabulary, specialTokens, catching());
  }

  /** Bytes that WebAssembly holds now; they never become fewer. */
  get heapBytes(): number {
    return this.#memory.buffer.byteLength;
  }

  /** `grammar`: rules as print.ts writes them. */
  async compile(grammar: string): Promise<Compiled> {
    const rules = await this.#library.Grammar.fromEBNF(grammar, 'root');
    const compiled = await this.#compiler.compileGrammar(rules);
    rules.dispose();
    return new Compiled(this.#library, compiled, this.#vocabulary, this.specialTokens);
  }
}

/** May feed any number of matchers, and be disposed of before them. */
export class Compiled {
  readonly #library: Library;
  readonly #compiled: CompiledGrammar;
  readonly #vocabulary: Vocabulary;
  readonly #specialTokens: SpecialTokens;

  constructor(library: Library, compiled: CompiledGrammar, vocabulary: Vocabulary, specialTokens: SpecialTokens) {
    this.#library = library;
    this.#compiled = compiled;
    this.#vocabulary = vocabulary;
    this.#specialTokens = specialTokens;
  }

  async matcher(): Promise<Matcher> {
    const matcher = await this.#library.GrammarMatcher.createGrammarMatcher(this.#compiled);
    return new Matcher(matcher, this.#vocabulary, this.#specialTokens);
  }

  dispose(): void {
    this.#compiled.dispose();
  }
}

/** Where an answer stands in its language. */
export class Matcher {
  readonly #matcher: GrammarMatcher;
  readonly #stopIds: readonly number[];
  readonly #words: number;
  /** Bits of the last word that stand for ids. */
  readonly #lastWord: number;
  readonly #specialTokens: SpecialTokens;
  /** Stop ids after the first one, which the library does not count. */
  #extraStops = 0;

  constructor(matcher: GrammarMatcher, { stopIds, vocabSize }: Vocabulary, specialTokens: SpecialTokens) {
    this.#matcher = matcher;
    this.#specialTokens = specialTokens;
    this.#stopIds = stopIds;
    this.#words = maskWords(vocabSize);
    this.#lastWord = -1 >>> ((32 - (vocabSize & 31)) & 31);
  }

  /** A stop id has been accepted. */
  get isComplete(): boolean {
    return this.#matcher.isTerminated();
  }

  /** Writes the bits of the ids that may come next. False: none may, the answer is in a dead end. */
  async mask(into: Int32Array): Promise<boolean> {
    if (this.isComplete) {
      into.fill(0);
      for (const id of this.#stopIds) into[id >> 5] |= 1 << (id & 31);
      return this.#stopIds.length > 0;
    }
    const mask = await this.#matcher.getNextTokenBitmask();
    into.set(mask.subarray(0, this.#words));
    // The library leaves set what stands behind the last id.
    into[this.#words - 1] &= this.#lastWord;
    this.#specialTokens.clean(into);
    return into.some(word => word !== 0);
  }

  /** False: `id` is not allowed here, and nothing has changed. */
  accept(id: number): boolean {
    if (!this.isComplete) return this.#matcher.acceptToken(id);
    if (!this.#stopIds.includes(id)) return false;
    this.#extraStops++;
    return true;
  }

  /** Takes back the last `count` accepted ids. */
  rollback(count: number): void {
    const extra = Math.min(count, this.#extraStops);
    this.#extraStops -= extra;
    if (count > extra) this.#matcher.rollBack(count - extra);
  }

  /** The text that must come next, whatever follows; often empty. */
  forced(): string {
    return this.isComplete ? '' : this.#matcher.findJumpForwardString();
  }

  dispose(): void {
    this.#matcher.dispose();
  }
}

/** The library takes an empty spelling for a token that no language has. Stop ids are allowed by number. */
function spellings({ tokenBytes, vocabSize, stopIds }: Vocabulary, specialTokens: SpecialTokens): string[] {
  const { offsets, bytes, special } = tokenBytes;
  return Array.from({ length: vocabSize }, (_, id) =>
    id >= special.length || (special[id] === 1 && stopIds.includes(id))
      ? ''
      : spellBytes(special[id] === 1 ? specialTokens.bytesOf(id) : bytes.subarray(offsets[id], offsets[id + 1])),
  );
}

/** A script for browsers in the guise of a module: it leaves its exports in a global and looks for those of CommonJS. */
async function importLibrary(): Promise<Library> {
  const scope = globalThis as unknown as Record<string, unknown>;
  scope['require'] ??= createRequire(import.meta.url);
  scope['__filename'] ??= import.meta.filename;
  scope['__dirname'] ??= import.meta.dirname;
  await import('@mlc-ai/web-xgrammar');
  return scope['xgrammar'] as Library;
}

interface WasmMemory {
  readonly buffer: ArrayBufferLike;
  grow(pages: number): number;
}

function isMemory(value: unknown): value is WasmMemory {
  return value instanceof WebAssembly.Memory;
}

interface Instantiated {
  readonly instance: { readonly exports: Record<string, unknown> };
}

/** Gets hold of the memory of the next module that is instantiated, and gives it a ceiling. */
function catchMemory(heapBytes: number): () => WasmMemory {
  const wasm = WebAssembly as unknown as { instantiate(...args: unknown[]): Promise<Instantiated> };
  const instantiate = wasm.instantiate;
  let memory: WasmMemory | undefined;
  wasm.instantiate = async (...args) => {
    wasm.instantiate = instantiate;
    const result = await instantiate.apply(WebAssembly, args);
    memory = Object.values(result.instance.exports).find(isMemory)!;
    const grow = memory.grow.bind(memory);
    memory.grow = pages => {
      if (memory!.buffer.byteLength + pages * WASM_PAGE_BYTES > heapBytes) throw new RangeError('ceiling reached');
      return grow(pages);
    };
    return result;
  };
  return () => memory!;
}
