/**
 * Conversations at random: they begin, go on, change their last turn, share beginnings, run beside each other, are given up and meet
 * failures, in an engine that is set up at random. Every answer must be that of a new session in a plain engine.
 */

import { expect } from 'vitest';
import type { EngineOptions } from '../../src/engine/api.ts';
import { readModel } from '../../src/engine/model-files.ts';
import { Random } from '../../src/engine/random.ts';
import type { Runtime, RuntimeHooks } from '../../src/engine/runtime.ts';
import { readReference } from '../../src/eval/reference.ts';
import { IMPLEMENTATIONS } from '../../src/kernels/test-support.ts';
import { packDirectory, withRuntime } from './packs.ts';
import { type Answer, type Asked, Together } from './together.ts';

const CONTEXT = 512;
const LONGEST_PROMPT = 300;
/** Too small for a pack's weights, states and experts together. */
const SMALL_ARENA_BYTES = 4 << 20;
const INJECTED = 'a pass that fails';

export interface Troubles {
  /** Requests are given up at any time. */
  readonly cancels?: boolean;
  /** Passes fail in any layer, and again in their repair. */
  readonly failures?: boolean;
  /** A read fails, or is short, while experts are loaded. */
  readonly reads?: boolean;
}

/** How many requests ended how, and how many tokens of prompts were not computed again. */
export interface Outcome {
  answered: number;
  cancelled: number;
  failed: number;
  cachedTokens: number;
}

interface Sent {
  readonly asked: Asked;
  readonly answer: () => Answer;
}

class Dice {
  readonly #random: Random;

  constructor(seed: number) {
    this.#random = new Random(seed);
  }

  below(n: number): number {
    return Math.floor(this.#random.nextFloat64() * n);
  }

  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)];
  }

  chance(p: number): boolean {
    return this.#random.nextFloat64() < p;
  }
}

type Options = Omit<EngineOptions, 'model'>;

/** Anything that may not show in an answer. */
function randomOptions(dice: Dice): { options: Options; arenaBytes?: number } {
  const kernels = dice.pick(IMPLEMENTATIONS).name;
  const isSlow = kernels === 'reference';
  const options: Options = {
    kernels,
    // lanes that wait for each other cost more than they give on a small machine
    threads: dice.pick([1, 1, 2, 3]),
    chunk: dice.pick(isSlow ? [32, 64, 200] : [1, 3, 7, 16, 33, 64, 130, 300]),
    slots: 1 + dice.below(4),
    expertSlots: dice.chance(0.2) ? 4 : 4 + dice.below(60),
    readers: 1 + dice.below(3),
    prefetch: dice.chance(0.3) ? 'off' : dice.chance(0.5) ? 'on' : 'auto',
  };
  // activations of a longer chunk would not fit
  const isSmall = dice.chance(0.5) && options.chunk! <= 64;
  return { options, arenaBytes: isSmall ? SMALL_ARENA_BYTES : undefined };
}

/** Token ids with the bits of their probabilities. */
function shown({ events }: Answer): string[] {
  return events.flatMap(event => (event.type === 'token' ? [`${event.id}:${event.logprobs!.logprob}`] : []));
}

class Conversations {
  readonly #dice: Dice;
  readonly #ids: readonly number[];
  /** Prompts with their answers. */
  readonly #all: { prompt: readonly number[]; answer: readonly number[] }[] = [];

  constructor(dice: Dice, ids: readonly number[]) {
    this.#dice = dice;
    this.#ids = ids;
  }

  /** The next request, and where its answer belongs. */
  next(): { asked: Asked; tell: (answer: Answer) => void } {
    const dice = this.#dice;
    const prompt = this.#prompt().slice(0, LONGEST_PROMPT);
    const asked: Asked = {
      ids: prompt,
      temperature: dice.chance(0.5) ? 0 : 1,
      seed: dice.below(1000),
      maxTokens: 1 + dice.below(16),
      ignoreEos: true,
      logprobs: 0,
    };
    return { asked, tell: ({ tokenIds }) => void this.#all.push({ prompt, answer: tokenIds }) };
  }

  #prompt(): number[] {
    const dice = this.#dice;
    if (this.#all.length === 0 || dice.chance(0.25)) return this.#text(1 + dice.below(220));
    const { prompt, answer } = dice.chance(0.6) ? this.#all.at(-1)! : dice.pick(this.#all);
    const kind = dice.below(5);
    if (kind === 0) return [...prompt];
    if (kind === 1) return [...prompt.slice(0, 1 + dice.below(prompt.length)), ...this.#text(1 + dice.below(60))];
    if (kind === 2)
      return [...prompt.slice(0, Math.max(1, prompt.length - dice.below(20))), ...this.#text(1 + dice.below(30))];
    // not always as it was written
    const kept = answer.slice(0, dice.chance(0.7) ? answer.length : dice.below(answer.length + 1));
    return [...prompt, ...kept, ...this.#text(1 + dice.below(80))];
  }

  #text(n: number): number[] {
    return Array.from({ length: n }, () => this.#dice.pick(this.#ids));
  }
}

/** Makes passes fail until told otherwise. */
function failAtRandom(runtime: Runtime, dice: Dice): () => void {
  const model = runtime.model as { forward: Runtime['model']['forward'] };
  const { forward } = model;
  model.forward = (batch, observer) => {
    const last = dice.chance(0.08) ? dice.below(runtime.info.layers) : -1;
    forward.call(runtime.model, batch, {
      ...observer,
      beforeLayer(layer) {
        if (layer === last) throw new Error(INJECTED);
        observer?.beforeLayer?.(layer);
      },
    });
  };
  return () => {
    model.forward = forward;
  };
}

/** Sends a few requests that run beside each other. */
function sendGroup(all: Together, conversations: Conversations, dice: Dice, { cancels = false }: Troubles): Sent[] {
  const group = Array.from({ length: 1 + dice.below(all.runtime.info.slots + 1) }, () => {
    const { asked, tell } = conversations.next();
    const isGivenUp = cancels && dice.chance(0.3);
    let events = isGivenUp && dice.chance(0.5) ? dice.below(8) : Number.POSITIVE_INFINITY;
    let looks = isGivenUp && events === Number.POSITIVE_INFINITY ? dice.below(40) : Number.POSITIVE_INFINITY;
    const answer = all.add(
      asked,
      () => --events < 0,
      () => --looks < 0,
    );
    for (let steps = dice.below(4); steps > 0; steps--) all.scheduler.step();
    return { asked, answer, tell };
  });
  all.finish();
  for (const { answer, tell } of group) tell(answer());
  return group;
}

/** Plays `rounds` of a few requests each and compares all of them. Throws with the seed where an answer is another one. */
export async function playRandomly(
  pack: string,
  seed: number,
  rounds: number,
  troubles: Troubles = {},
): Promise<Outcome> {
  const model = packDirectory(pack);
  const dice = new Dice(seed);
  // how many passes there are depends on time
  const failing = new Dice(seed + 0.5e9);
  const { options, arenaBytes } = randomOptions(dice);
  const shared: Options = {
    context: CONTEXT,
    kv: dice.chance(0.3) ? 'bf16' : 'f32',
    activations: dice.chance(0.5) ? 'exact' : 'int8',
  };
  const conversations = new Conversations(dice, readReference(model, 3).inputIds);
  const hooks: RuntimeHooks = {
    ...(arenaBytes && { arenaBytes }),
    ...(troubles.reads && {
      faults: { nth: residentReads(model) + 1 + dice.below(300), kind: dice.pick(['eio', 'short'] as const) },
    }),
  };
  const what = `${pack}, seed ${seed}: ${JSON.stringify({ ...shared, ...options, ...hooks })}`;
  const sent = await withRuntime(
    { model, ...shared, ...options },
    runtime => {
      const all = new Together(runtime, model);
      const list: Sent[] = [];
      for (let round = 0; round < rounds; round++) {
        const restore = troubles.failures ? failAtRandom(runtime, failing) : () => {};
        list.push(...sendGroup(all, conversations, dice, troubles));
        restore();
      }
      // whatever was, the next ones are answered
      list.push(...sendGroup(all, conversations, dice, {}));
      return list;
    },
    hooks,
  );
  return compare(sent, { model, ...shared, threads: 1, readers: 1 }, what, troubles);
}

/** Reads while a model is opened. */
function residentReads(model: string): number {
  const { records, dense } = readModel({ model }).records;
  return [...dense.values()].flat().reduce((sum, record) => sum + records[record].extents.length, 0);
}

async function compare(
  sent: readonly Sent[],
  plain: EngineOptions,
  what: string,
  troubles: Troubles,
): Promise<Outcome> {
  const outcome: Outcome = { answered: 0, cancelled: 0, failed: 0, cachedTokens: 0 };
  await withRuntime(plain, runtime => {
    for (const [i, { asked, answer }] of sent.entries()) {
      const got = answer();
      const [fresh] = new Together(runtime, plain.model).all([asked]);
      expect(fresh.error).toBeNull();
      const where = `${what}, request ${i} of ${asked.ids.length} tokens`;
      outcome.cachedTokens += got.cachedTokens;
      // what came is right in any case
      const tokens = shown(got);
      expect(tokens, where).toEqual(shown(fresh).slice(0, tokens.length));
      if (got.error !== null) {
        outcome.failed++;
        const { code, message } = got.error as { code?: string; message: string };
        const isExpected =
          (troubles.failures && message === INJECTED) ||
          (troubles.reads && /^(?:READ_FAILED|SHORT_READ)$/.test(code ?? ''));
        expect(isExpected, `${where}: ${(got.error as Error).stack}`).toBe(true);
      } else if (got.finishReason === 'cancelled') {
        outcome.cancelled++;
        expect(troubles.cancels, where).toBe(true);
      } else {
        outcome.answered++;
        expect(tokens.length, where).toBe(asked.maxTokens);
      }
    }
  });
  return outcome;
}
