/** Compiled grammars by their text: clients send the same schema with every request. */

import type { Compiled, GrammarLibrary, Matcher } from './adapter.ts';
import type { GrammarSpec } from './api.ts';
import { lowerSpec } from './lower.ts';

const MAX_ENTRIES = 32;
/** With 150,000 tokens a large schema takes several MB: fewer are kept once half of the memory has been needed. */
const MAX_ENTRIES_WHEN_TIGHT = 4;

export class CompiledCache {
  readonly #library: GrammarLibrary;
  readonly #heapBytes: number;
  /** In order of last use. */
  readonly #compiled = new Map<string, Compiled>();

  /** `heapBytes`: what the library may take. */
  constructor(library: GrammarLibrary, heapBytes: number) {
    this.#library = library;
    this.#heapBytes = heapBytes;
  }

  /** At the start of the language. Throws RequestError for what a client can change. */
  async matcher(spec: GrammarSpec): Promise<Matcher> {
    const grammar = lowerSpec(spec, token => this.#library.specialTokens.characterOf(token));
    const isTight = this.#library.heapBytes > this.#heapBytes / 2;
    const most = isTight ? MAX_ENTRIES_WHEN_TIGHT : MAX_ENTRIES;
    while (this.#compiled.size > most) this.#forgetOldest();
    const compiled = this.#compiled.get(grammar) ?? (await this.#library.compile(grammar));
    this.#compiled.delete(grammar);
    this.#compiled.set(grammar, compiled);
    return compiled.matcher();
  }

  #forgetOldest(): void {
    const [oldest, entry] = this.#compiled.entries().next().value!;
    this.#compiled.delete(oldest);
    entry.dispose();
  }
}
