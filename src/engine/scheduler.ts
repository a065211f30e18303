/**
 * Who computes next. Requests get a session each; in every step, which is one forward pass, all answers that can go on take
 * their next token together, and prompts add chunks. What is computed together cannot show in a result, so everything here is
 * about time: experts are read once for all rows of a step, and a long prompt does not hold up the answers of others.
 */

import { Cancelled } from '../experts/store.ts';
import { assertUnchanged } from '../formats/checkpoint.ts';
import type { Generation } from './generation.ts';
import type { Runtime } from './runtime.ts';
import { forward } from './session.ts';
import type { SessionPool } from './session-pool.ts';
import type { StatusWriter } from './status.ts';

/** Tokens of prompts in one step while others wait for their next token. */
const SHARED_PROMPT_ROWS = 128;
/** Finding a mask takes a fraction of a millisecond; answers whose masks take longer miss a step instead of holding up the others. */
const MASK_WAIT_MS = 5;

/** A generation's part in a step. */
interface Part {
  readonly generation: Generation;
  readonly rows: number;
  readonly isPrompt: boolean;
}

export class Scheduler {
  readonly #runtime: Runtime;
  readonly #pool: SessionPool;
  readonly #status: StatusWriter;
  /** In order of arrival. */
  readonly #waiting: Generation[] = [];
  /** In order of their turn. */
  #running: Generation[] = [];
  /** How long answers have been held up by prompts, less the steps they have had to themselves since. */
  #owedMs = 0;
  /** Until when the step that is composed waits for masks. */
  #masksUntilMs = 0;

  constructor(runtime: Runtime, pool: SessionPool, status: StatusWriter) {
    this.#runtime = runtime;
    this.#pool = pool;
    this.#status = status;
  }

  add(generation: Generation): void {
    this.#waiting.push(generation);
    this.#tellLoad();
  }

  /** One forward pass, or none while all wait for masks; false when there is nothing to do. */
  step(): boolean {
    this.#endCancelled();
    this.#admit();
    if (this.#running.length === 0) {
      this.#tellLoad();
      return false;
    }
    const parts = this.#compose();
    if (parts.length > 0) this.#compute(parts);
    if (this.#running.length === 0) this.#runtime.store.settle();
    this.#tellLoad();
    this.#tellExperts();
    return true;
  }

  #endCancelled(): void {
    for (const queue of [this.#waiting, this.#running]) {
      for (const generation of queue.filter(one => one.sink.cancelled())) this.#end(generation, true);
    }
  }

  #admit(): void {
    while (this.#waiting.length > 0) {
      const generation = this.#waiting[0];
      const { promptIds } = generation;
      const session = this.#pool.take(promptIds);
      if (!session) return;
      this.#waiting.shift();
      this.#running.push(generation);
      try {
        assertUnchanged(this.#runtime.files.checkpoint.files);
        generation.begin(session);
        this.#status.add('cachedTokens', session.length);
      } catch (error) {
        this.#pool.give(session);
        this.#fail(generation, error);
      }
    }
  }

  /** Answers first, then prompts as far as rows and their share of the time allow. */
  #compose(): Part[] {
    const { maxRows } = this.#runtime.batch;
    this.#masksUntilMs = performance.now() + MASK_WAIT_MS;
    const parts: Part[] = [];
    const prompts: Generation[] = [];
    let answering = 0;
    for (const generation of [...this.#running]) {
      if (generation.promptLeft > 0) prompts.push(generation);
      else {
        answering++;
        if (parts.length < maxRows && this.#canGoOn(generation)) parts.push({ generation, rows: 1, isPrompt: false });
      }
    }
    if (answering === 0) this.#owedMs = 0;
    else if (this.#owedMs > 0 && parts.length > 0) return parts;
    // where answers would take all rows, a prompt whose turn it is takes the place of one
    const [prompt] = prompts;
    const isItsTurn = prompt !== undefined && this.#running[0] === prompt;
    if (parts.length === maxRows && isItsTurn && (prompt.promptLeft > 1 || this.#canGoOn(prompt))) parts.pop();
    let left = maxRows - parts.length;
    if (answering > 0) left = Math.min(left, SHARED_PROMPT_ROWS);
    for (const generation of prompts) {
      if (left === 0) break;
      let rows = generation.promptRows(left);
      // the first token is chosen right after the last of the prompt
      if (rows === generation.promptLeft && !this.#canGoOn(generation)) rows--;
      // a constraint that has failed has ended its request
      if (rows === 0 || !this.#running.includes(generation)) continue;
      parts.push({ generation, rows, isPrompt: true });
      left -= rows;
    }
    return parts;
  }

  /** The token that the step leads to can be chosen: its mask is there. */
  #canGoOn(generation: Generation): boolean {
    try {
      const { constraint } = generation;
      if (!constraint || constraint.isReady) return true;
      constraint.wait(Math.max(0, this.#masksUntilMs - performance.now()));
      return constraint.isReady;
    } catch (error) {
      this.#fail(generation, error);
      return false;
    }
  }

  #compute(parts: readonly Part[]): void {
    const begun = performance.now();
    const prompts = parts.some(part => part.isPrompt);
    const promptRows = rowsOf(parts.filter(part => part.isPrompt));
    const { telemetry } = this.#runtime;
    telemetry.stepBegins(promptRows, rowsOf(parts) - promptRows);
    try {
      this.#pass(parts);
    } catch (error) {
      this.#runtime.store.settle();
      telemetry.stepEnds(true);
      if (error instanceof Cancelled) return;
      // whose fault it is shows when each goes alone
      if (parts.length === 1) this.#fail(parts[0].generation, error);
      else for (const part of parts) this.#compute([part]);
      return;
    } finally {
      this.#runtime.cancelled = () => false;
    }
    const ms = performance.now() - begun;
    if (!parts[0].isPrompt) this.#owedMs = Math.max(0, this.#owedMs + (prompts ? ms : -ms));
    try {
      this.#afterwards(parts);
    } finally {
      telemetry.stepEnds(false);
    }
  }

  #pass(parts: readonly Part[]): void {
    const runtime = this.#runtime;
    const inPrompt = parts.filter(part => part.isPrompt);
    const wanted = (list: readonly Part[]) => list.some(({ generation }) => !generation.sink.cancelled());
    // a pass that ends early costs its neighbours all that they have computed since the last copy of states that cannot be taken back
    const { needsSnapshots } = runtime.batch.cache;
    const givenUp = () =>
      !wanted(parts) || (!needsSnapshots && inPrompt.some(({ generation }) => generation.sink.cancelled()));
    runtime.cancelled = givenUp;
    const feeds = parts.map(({ generation, rows }) => generation.feed(rows));
    forward(runtime, feeds, givenUp, {}, share => {
      for (const { generation, rows } of inPrompt) generation.tellProgress(rows, share);
    });
    this.#status.add('steps', 1);
  }

  /** Chooses tokens for all whose logits are there now, and turns the order of those who were served. */
  #afterwards(parts: readonly Part[]): void {
    const choosing: { generation: Generation; row: number }[] = [];
    let row = 0;
    for (const { generation, rows, isPrompt } of parts) {
      row += rows;
      if (isPrompt) {
        generation.tellProgress(rows, 1);
        this.#status.add('promptTokens', rows);
        if (generation.promptLeft > 0) continue;
        generation.promptDone();
        if (generation.isComplete) {
          this.#end(generation, false);
          continue;
        }
      }
      choosing.push({ generation, row: row - 1 });
    }
    if (choosing.length > 0) this.#chooseTokens(choosing);
    const served = new Set(parts.map(part => part.generation));
    const isServed = (generation: Generation) => served.has(generation);
    this.#running = [...this.#running.filter(one => !isServed(one)), ...this.#running.filter(isServed)];
  }

  #chooseTokens(choosing: readonly { generation: Generation; row: number }[]): void {
    this.#status.add('decodeSteps', 1);
    this.#status.add('decodeTokens', choosing.length);
    const { model, info } = this.#runtime;
    for (let first = 0; first < choosing.length; ) {
      let n = 1;
      while (n < model.maxLogitRows && choosing[first + n]?.row === choosing[first].row + n) n++;
      const group = choosing.slice(first, first + n);
      let logits: Float32Array | null = null;
      for (const [i, { generation, row }] of group.entries()) {
        try {
          // a row that is not finite must not end the others
          logits ??= n === 1 ? null : tryLogits(() => model.logits(choosing[first].row, n));
          const own = logits ? logits.subarray(i * info.vocabSize, (i + 1) * info.vocabSize) : model.logits(row, 1);
          this.#chooseToken(generation, own, choosing.length);
        } catch (error) {
          this.#fail(generation, error);
        }
      }
      first += n;
    }
  }

  #chooseToken(generation: Generation, logits: Float32Array, batchRows: number): void {
    generation.choose(logits, batchRows);
    if (generation.isComplete) this.#end(generation, false);
  }

  #end(generation: Generation, cancelled: boolean): void {
    try {
      if (!cancelled) assertUnchanged(this.#runtime.files.checkpoint.files);
    } catch (error) {
      this.#fail(generation, error);
      return;
    }
    this.#remove(generation);
    generation.finish(cancelled);
  }

  /** Whatever was fed halfway is not trusted again. */
  #fail(generation: Generation, error: unknown): void {
    generation.session?.truncate(0);
    this.#remove(generation);
    try {
      // weights that were overwritten explain any other error
      assertUnchanged(this.#runtime.files.checkpoint.files);
      generation.sink.fail(error);
    } catch (changed) {
      generation.sink.fail(changed);
    }
  }

  #remove(generation: Generation): void {
    for (const queue of [this.#waiting, this.#running]) {
      const at = queue.indexOf(generation);
      if (at >= 0) queue.splice(at, 1);
    }
    generation.leave();
    if (generation.session) this.#pool.give(generation.session);
    // before anybody hears that it has ended
    this.#tellLoad();
  }

  #tellExperts(): void {
    const { telemetry, store } = this.#runtime;
    telemetry.experts(places => store.places(places), this.#running.length === 0);
  }

  #tellLoad(): void {
    this.#status.set('active', this.#running.length);
    this.#status.set('waiting', this.#waiting.length);
    this.#status.set('restoredTokens', this.#pool.restoredTokens);
    this.#status.experts(this.#runtime.store.counters);
  }
}

function rowsOf(parts: readonly Part[]): number {
  return parts.reduce((sum, part) => sum + part.rows, 0);
}

function tryLogits(compute: () => Float32Array): Float32Array | null {
  try {
    return compute();
  } catch {
    return null;
  }
}
