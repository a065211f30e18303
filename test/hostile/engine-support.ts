/** Runs of the engine in this thread, with everything that came out of them. */

import fs from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect } from 'vitest';
import { ColiError } from '../../src/common/errors.ts';
import type { EngineOptions, GenerateEvent } from '../../src/engine/api.ts';
import { generate, type IdRequest, type TokenizerFacts } from '../../src/engine/generate.ts';
import { Runtime, type RuntimeHooks } from '../../src/engine/runtime.ts';
import { Session } from '../../src/engine/session.ts';
import { Tokenizer } from '../../src/tokenizer/tokenizer.ts';
import { TEST_RAM_BYTES } from '../support/packs.ts';

/** A run that has not ended after this long is stopped, and its test fails: nothing may wait for ever. */
const PATIENCE_MS = 30_000;

/** A directory that lives as long as the test file. */
export function fileDirectory(): string {
  const directory = fs.mkdtempSync(join(tmpdir(), 'coli-test-'));
  afterAll(() => fs.rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export interface Run {
  readonly events: readonly GenerateEvent[];
  readonly tokenIds: readonly number[];
  /** Texts of the token events, joined. */
  readonly text: string;
  readonly end: Extract<GenerateEvent, { type: 'end' }> | null;
  readonly error: ColiError | null;
}

/** A runtime with a session, as the engine worker has them. */
export class Bench {
  readonly runtime: Runtime;
  readonly session: Session;
  readonly #facts: TokenizerFacts;

  private constructor(runtime: Runtime, facts: TokenizerFacts) {
    this.runtime = runtime;
    this.session = new Session(runtime);
    this.#facts = facts;
  }

  static async open(options: EngineOptions, hooks: RuntimeHooks = {}): Promise<Bench> {
    const { tokenBytes, vocabSize } = Tokenizer.load(options.model);
    const runtime = await Runtime.open({ ram: TEST_RAM_BYTES, threads: 1, context: 128, ...options }, () => {}, hooks);
    return new Bench(runtime, { tokenBytes, vocabSize, endOfTurnIds: [] });
  }

  /** `onEvent` is called in the middle of the run; `cancelled` as the engine asks it. */
  run(
    promptIds: readonly number[],
    request: IdRequest,
    { onEvent, cancelled }: { onEvent?: (event: GenerateEvent) => void; cancelled?: () => boolean } = {},
  ): Run {
    const deadline = performance.now() + PATIENCE_MS;
    const events: GenerateEvent[] = [];
    let error: ColiError | null = null;
    this.runtime.cancelled = () => performance.now() > deadline || (cancelled?.() ?? false);
    try {
      generate(this.runtime, this.session, this.#facts, promptIds, request, event => {
        events.push(event);
        onEvent?.(event);
      });
    } catch (thrown) {
      if (!(thrown instanceof ColiError)) throw thrown;
      error = thrown;
      this.session.truncate(0);
    }
    expect(performance.now()).toBeLessThan(deadline);
    const tokens = events.filter(event => event.type === 'token');
    const last = events.at(-1);
    return {
      events,
      tokenIds: tokens.map(token => token.id),
      text: tokens.map(token => token.text).join(''),
      end: last?.type === 'end' ? last : null,
      error,
    };
  }

  close(): Promise<void> {
    return this.runtime.close();
  }
}

/** Opens, uses and closes. */
export async function withBench<T>(
  options: EngineOptions,
  hooks: RuntimeHooks,
  use: (bench: Bench) => T | Promise<T>,
): Promise<T> {
  const bench = await Bench.open(options, hooks);
  try {
    return await use(bench);
  } finally {
    await bench.close();
  }
}

/** The ColiError that a promise is rejected with. */
export async function rejection(promise: Promise<unknown>): Promise<ColiError> {
  const thrown = await promise.then(
    () => null,
    error => error,
  );
  expect(thrown).toBeInstanceOf(ColiError);
  return thrown as ColiError;
}

export const bytesOf = (text: string): number[] => [...new TextEncoder().encode(text)];
