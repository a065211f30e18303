/** From a request to what the engine's thread needs: everything is checked here, on other threads than the one that computes. */

import { RequestError } from '../common/errors.ts';
import type { Constraint } from '../grammar/api.ts';
import { GrammarService } from '../grammar/service.ts';
import type { TextService } from '../tokenizer/text-service.ts';
import type {
  ConstraintRequest,
  EffectiveSampling,
  EngineInfo,
  GenerateRequest,
  PreparedRequest,
  Prompt,
} from './api.ts';
import type { Order } from './generation.ts';
import { checkPrompt, refuseHugeText } from './prompt-check.ts';
import { checkBiasIds } from './sampler.ts';
import { resolveSampling } from './sampling-options.ts';
import { checkPromptShape, checkRequest } from './shapes.ts';
import { checkStopStrings } from './stops.ts';

export class Prepared implements PreparedRequest {
  readonly #order: Order;
  readonly #constraint: Constraint | null;
  /** Given to the engine, or discarded. */
  #isSpent = false;

  constructor(order: Order, constraint: Constraint | null) {
    this.#order = order;
    this.#constraint = constraint;
  }

  get promptIds(): readonly number[] {
    return this.#order.promptIds;
  }

  get sampling(): EffectiveSampling {
    return this.#order.sampling;
  }

  /** For the engine; once. A second answer would wait for masks that nobody computes. */
  spend(): Order {
    if (this.#isSpent) {
      throw new RequestError('REQUEST_SPENT', 'a prepared request can be run once, and not after it was discarded', {
        hint: 'prepare it again',
      });
    }
    this.#isSpent = true;
    return this.#order;
  }

  discard(): void {
    if (this.#isSpent) return;
    this.#isSpent = true;
    this.release();
  }

  /** The engine is done with it. */
  release(): void {
    this.#constraint?.release();
  }
}

export interface PreparerOptions {
  readonly generationConfig: Readonly<Record<string, unknown>> | null;
  /** Ids with which the model ends an answer. */
  readonly eosIds: readonly number[];
  /** Requests may have a constraint. */
  readonly constraints: boolean;
}

export class Preparer {
  readonly #text: TextService;
  readonly #info: EngineInfo;
  readonly #generationConfig: Readonly<Record<string, unknown>> | null;
  /** Ids that the tokenizer has and the model can choose. */
  readonly #vocabSize: number;
  /** Bytes. */
  readonly #longestToken: number;
  readonly #grammars: GrammarService | null;

  constructor(text: TextService, info: EngineInfo, { generationConfig, eosIds, constraints }: PreparerOptions) {
    this.#text = text;
    this.#info = info;
    this.#generationConfig = generationConfig;
    const { tokenBytes } = text;
    this.#vocabSize = Math.min(text.info.vocabSize, info.vocabSize);
    const { offsets } = tokenBytes;
    this.#longestToken = offsets.reduce((most, offset, id) => Math.max(most, offset - (offsets[id - 1] ?? 0)), 1);
    const stopIds = [...new Set([...eosIds, ...text.info.endOfTurnIds])].filter(id => id < this.#vocabSize);
    this.#grammars = constraints ? new GrammarService({ tokenBytes, vocabSize: this.#vocabSize, stopIds }) : null;
  }

  /** Throws RequestError for whatever is wrong with a request, CANCELLED once `signal` is aborted. */
  async prepare(request: GenerateRequest, signal?: AbortSignal): Promise<Prepared> {
    checkRequest(request);
    const { prompt, constraint, logitBias, logprobs, stop, ignoreEos } = request;
    const markers = this.#markerIds(request.markers ?? []);
    checkStopStrings(stop ?? []);
    checkBiasIds(logitBias, this.#vocabSize);
    // what does not depend on the prompt is refused before a long text is read
    resolveSampling(request, this.#generationConfig, this.#info.context);
    const { ids } = await this.render(prompt, false, signal);
    const sampling = resolveSampling(request, this.#generationConfig, checkPrompt(ids, this.#info));
    const order: Order = { promptIds: ids, sampling, request: { logitBias, logprobs, stop, ignoreEos }, markers };
    if (!constraint) return new Prepared(order, null);
    const grammars = this.#grammars ?? refuseConstraints();
    const afterId = await this.#afterId(constraint, signal);
    const compiled = await grammars.compile(constraint.grammar, sampling.maxTokens, signal);
    return new Prepared({ ...order, constraint: { channel: compiled.channel, afterId } }, compiled);
  }

  /** For a request that was cancelled before its prompt was read. */
  nothing(request: GenerateRequest): Prepared {
    const sampling = resolveSampling(request, this.#generationConfig, 1);
    return new Prepared({ promptIds: [], sampling, request: {} }, null);
  }

  /** A prompt as ids and text; the text of ids is empty. */
  async render(prompt: Prompt, anyLength: boolean, signal?: AbortSignal): Promise<{ ids: number[]; text: string }> {
    checkPromptShape(prompt);
    if ('ids' in prompt) return { ids: [...prompt.ids], text: '' };
    if (!anyLength) refuseHugeText(prompt, this.#info, this.#longestToken);
    if ('text' in prompt) return { ids: await this.#text.encode(prompt.text, {}, signal), text: prompt.text };
    const { messages, tools, variables, continueFinal } = prompt;
    return this.#text.render(messages, tools, { variables, continueFinal }, signal);
  }

  async close(): Promise<void> {
    await this.#grammars?.close();
  }

  #markerIds(markers: readonly string[]): ReadonlyMap<number, string> {
    const { addedTokens, addedIds } = this.#text.info;
    const named = addedTokens.map((content, i) => [addedIds[i], content] as const);
    return new Map(named.filter(([, content]) => markers.includes(content)));
  }

  /** A constraint can begin after a token only if that token is one. */
  async #afterId({ after }: ConstraintRequest, signal?: AbortSignal): Promise<number | null> {
    if (after === undefined) return null;
    const ids = await this.#text.encode(after, { surround: false }, signal);
    if (ids.length === 1) return ids[0];
    throw new RequestError(
      'UNSUPPORTED_CONSTRAINT',
      `this model writes ${JSON.stringify(after)} in several tokens, so a required form cannot begin after it`,
      { hint: 'turn thinking off for this request' },
    );
  }
}

function refuseConstraints(): never {
  throw new RequestError('CONSTRAINTS_OFF', 'the engine was opened without room for constraints', {
    hint: 'open it with constraints: true',
  });
}
