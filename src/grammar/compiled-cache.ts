/** Compiled grammars by their text: clients send the same schema with every request. */

import type { Compiled, GrammarLibrary, Matcher } from './adapter.ts';
import type { GrammarSpec } from './api.ts';
import { lowerSpec } from './lower.ts';

/** A compiled grammar takes some 100 kB, a large one some MB. */
const MAX_ENTRIES = 32;

export class CompiledCache {
  readonly #library: GrammarLibrary;
  /** In order of last use. */
  readonly #compiled = new Map<string, Compiled>();

  constructor(library: GrammarLibrary) {
    this.#library = library;
  }

  /** At the start of the language. Throws RequestError for what a client can change. */
  async matcher(spec: GrammarSpec): Promise<Matcher> {
    const grammar = lowerSpec(spec);
    const compiled = this.#compiled.get(grammar) ?? (await this.#library.compile(grammar));
    this.#compiled.delete(grammar);
    this.#compiled.set(grammar, compiled);
    if (this.#compiled.size > MAX_ENTRIES) {
      const [oldest, entry] = this.#compiled.entries().next().value!;
      this.#compiled.delete(oldest);
      entry.dispose();
    }
    return compiled.matcher();
  }
}
