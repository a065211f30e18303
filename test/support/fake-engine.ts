/** An engine that says what a test wants: its tokens are texts, and its template puts the prompt's parts in a row. */

import type {
  Engine,
  EngineInfo,
  GenerateEvent,
  GenerateRequest,
  GenerateStats,
  PreparedRequest,
  Prompt,
  TextFacts,
} from '../../src/engine/api.ts';
import { createTelemetry } from '../../src/telemetry/memory.ts';
import { TelemetryReader } from '../../src/telemetry/reader.ts';

export interface FakeOptions {
  /** The engine has made the whole answer before any of it is read. */
  readonly runsAhead?: boolean;
  /** Texts of the tokens of the answer. */
  readonly answer: readonly string[];
  readonly text?: Partial<TextFacts>;
  /** Ends of prompts, such as an opened block. */
  readonly promptEnd?: readonly string[];
  readonly finishReason?: 'stop' | 'length' | 'cancelled';
  readonly stopReason?: number | string | null;
  /** Thrown by prepare. */
  readonly refuses?: Error;
  /** Thrown in place of the end. */
  readonly fails?: Error;
  readonly cachedTokens?: number;
}

export interface FakeEngine extends Engine {
  /** Requests that were prepared, in order. */
  readonly requests: GenerateRequest[];
  /** Prepared and neither run nor discarded. */
  readonly open: number;
  readonly generated: number;
  /** Tokens that were asked for. */
  readonly tokens: number;
  textOf(ids: readonly number[]): string;
}

export function fakeEngine(options: FakeOptions): FakeEngine {
  const { answer, promptEnd = [], finishReason = 'stop', refuses, fails, cachedTokens = 0 } = options;
  const texts: string[] = [];
  const idOf = (text: string) => (texts.includes(text) ? texts.indexOf(text) : texts.push(text) - 1);
  const requests: GenerateRequest[] = [];
  const counts = { open: 0, generated: 0, tokens: 0 };
  const encode = (prompt: Prompt): number[] => {
    if ('ids' in prompt) return [...prompt.ids];
    if ('text' in prompt) return [idOf(prompt.text)];
    const { messages, tools = [], variables = {} } = prompt;
    const parts = [
      ...messages.map(({ role, content }) => `${role}: ${content}`),
      ...tools.map(tool => JSON.stringify(tool)),
    ];
    return [...parts, JSON.stringify(variables), ...promptEnd].map(idOf);
  };
  async function prepare(request: GenerateRequest): Promise<PreparedRequest> {
    requests.push(request);
    if (refuses) throw refuses;
    counts.open++;
    const sampling = { temperature: 0, seed: 1 } as PreparedRequest['sampling'];
    return { promptIds: encode(request.prompt), sampling, discard: () => void counts.open-- };
  }
  async function* generate(
    request: PreparedRequest | GenerateRequest,
    signal?: AbortSignal,
    onEnd: () => void = () => {},
  ): AsyncGenerator<GenerateEvent> {
    const prepared = 'promptIds' in request ? request : await prepare(request);
    counts.open--;
    counts.generated++;
    const { promptIds, sampling } = prepared;
    yield { type: 'start', promptIds: [...promptIds], sampling, cachedTokens };
    if (options.runsAhead) onEnd();
    for (const done of [1, 4]) yield { type: 'prefill', done, total: 4 };
    const ids: number[] = [];
    for (const text of answer) {
      if (signal?.aborted) break;
      const id = idOf(text);
      ids.push(id);
      counts.tokens++;
      const logprobs = { id, logprob: -0.5, top: [{ id, logprob: -0.5 }] };
      const { logprobs: wanted, markers = [] } = requests.at(-1)!;
      const said = markers.includes(text) ? { text: '', marker: text } : { text };
      yield { type: 'token', id, ...said, ...(wanted !== undefined && { logprobs }) };
    }
    if (fails) throw fails;
    const stats = {} as GenerateStats;
    const stopReason = options.stopReason ?? null;
    const reason = signal?.aborted ? 'cancelled' : finishReason;
    yield { type: 'end', text: answer.join(''), tokenIds: ids, finishReason: reason, stopReason, stats };
  }
  return {
    requests,
    get open() {
      return counts.open;
    },
    get generated() {
      return counts.generated;
    },
    get tokens() {
      return counts.tokens;
    },
    textOf: ids => ids.map(id => texts[id]).join('|'),
    info: { fingerprint: 'abc' } as EngineInfo,
    telemetry: new TelemetryReader(createTelemetry({ layers: 1, experts: 1, moeLayers: [0] })),
    measureLimits: async () => {
      throw new Error('there is nothing to measure');
    },
    text: {
      hasTemplate: true,
      template: null,
      addedTokens: [],
      chat: { stopTokens: [], thinking: { variable: null } },
      ...options.text,
    },
    status: {} as Engine['status'],
    prepare,
    generate,
    score: async () => ({}),
    encode: async prompt => encode(prompt),
    render: async prompt => ({ text: '', ids: encode(prompt) }),
    decode: async ids => ids.map(id => texts[id]).join(''),
    tokenBytes: id => new TextEncoder().encode(texts[id] ?? ''),
    close: async () => {},
  };
}
