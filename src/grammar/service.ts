import type { TokenBytes } from '../tokenizer/token-bytes.ts';
import type { Constraint, GrammarSpec } from './api.ts';
/** Placeholder until the service lands. */
export class GrammarService {
  constructor(_options: { tokenBytes: TokenBytes; vocabSize: number; stopIds: readonly number[] }) {}
  compile(_spec: GrammarSpec, _maxTokens: number, _signal?: AbortSignal): Promise<Constraint> {
    return Promise.reject(new Error('not there yet'));
  }
  async close(): Promise<void> {}
}
