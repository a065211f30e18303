/** A server without a model: an engine and turns that do what a test says. */

import http from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import * as z from 'zod';
import { RequestError } from '../common/errors.ts';
import type { Engine, EngineInfo, EngineStatus, Prompt } from '../engine/api.ts';
import { createTelemetry } from '../telemetry/memory.ts';
import { TelemetryReader } from '../telemetry/reader.ts';
import { AdmissionQueue } from './admission.ts';
import { type AppParts, createApp } from './app.ts';
import type { Dialect } from './dialect.ts';
import { openAiErrorBody } from './errors.ts';
import { HTTP_LIMITS } from './http-server.ts';
import { DEFAULT_SETTINGS, type ServerSettings } from './settings.ts';
import type { Frame } from './sse.ts';
import { ModelState } from './state.ts';
import type { TurnEvent, TurnRequest, TurnRunner } from './turn.ts';

export const VOCABULARY = 300;
const BOS = 256;

export const testStatus: EngineStatus = {
  active: 1,
  waiting: 0,
  steps: 7,
  decodeSteps: 5,
  decodeTokens: 9,
  promptTokens: 11,
  cachedTokens: 3,
  restoredTokens: 2,
  expertRequests: 40,
  expertHits: 30,
  expertsWarmed: 6,
  expertWarmHits: 4,
  pinSwaps: 2,
  bytesRead: 4096,
  readWaitSeconds: 0.5,
};

const info = {
  family: 'test',
  vocabSize: VOCABULARY,
  maxContext: 4096,
  context: 1024,
  parameters: 1000,
  kernels: 'reference',
  activations: 'int8',
  kv: 'f32',
  slots: 2,
  threads: 1,
  policy: 'lfru',
  prefetch: 'auto',
  directIo: true,
  usage: { mode: 'on', tokens: 700 },
  plan: { total: 1e6, expertSlots: 8 },
  notes: [],
} as unknown as EngineInfo;

/** Bytes are its tokens; BOS goes before every text. */
export const testEngine: Engine = {
  info,
  text: {
    hasTemplate: true,
    template: '{{ messages }}',
    addedTokens: ['<bos>', '<eos>'],
    chat: { stopTokens: [], thinking: { variable: null } },
  },
  status: testStatus,
  telemetry: new TelemetryReader(createTelemetry({ layers: 2, experts: 4, moeLayers: [1] })),
  measureLimits: async () => {
    throw new Error('a server does not measure');
  },
  prepare: async () => ({
    promptIds: [0],
    sampling: {
      temperature: 0.5,
      topP: 0.9,
      topK: 4,
      minP: 0,
      repetitionPenalty: 1,
      presencePenalty: 0,
      frequencyPenalty: 0,
      seed: 1,
      maxTokens: 99,
    },
    discard: () => {},
  }),
  generate: () => {
    throw new Error('turns are the test’s own');
  },
  score: async () => ({}),
  encode: async (prompt: Prompt) => ('text' in prompt ? [BOS, ...Buffer.from(prompt.text)] : []),
  render: async (prompt: Prompt) => ({ text: JSON.stringify('messages' in prompt ? prompt.messages : null), ids: [1] }),
  decode: async ids => Buffer.from([...ids]).toString(),
  tokenBytes: id => Uint8Array.of(id),
  close: async () => {},
};

export type Run = (request: TurnRequest, signal: AbortSignal) => AsyncIterable<TurnEvent>;

export function testRunner(run: Run): TurnRunner {
  return {
    fingerprint: 'fp_test',
    run,
    check: async () => {},
    countTokens: async () => 1,
    promptText: async ({ messages }) => JSON.stringify(messages),
  };
}

/** One route of its own: the events of a turn as they are. */
export const echoDialect: Dialect = {
  name: 'Echo',
  routes(app, context) {
    const body = z.object({
      model: z.string().nullish(),
      stream: z.boolean().nullish(),
      text: z.string().min(1).nullish(),
      parts: z.union([z.string(), z.array(z.object({ text: z.string() }))]).nullish(),
    });
    const schema = { summary: 'Echo', body, response: { 200: z.looseObject({}) } };
    app.post('/echo', { schema }, async (request, reply) => {
      context.requireModel(request.body.model);
      const runner = context.runner();
      const turn: TurnRequest = {
        prompt: { kind: 'text', prompt: request.body.text ?? '', echo: false },
        client: context.client(request),
      };
      if (!request.body.stream) {
        return context.whole(reply, async signal => {
          const events: TurnEvent[] = [];
          for await (const event of runner.run(turn, signal)) events.push(event);
          return { events };
        });
      }
      await context.stream(request, reply, signal => frames(runner.run(turn, signal)), {
        errorFrames: error => [{ data: JSON.stringify(openAiErrorBody(error)) }],
      });
      return reply;
    });
  },
};

async function* frames(events: AsyncIterable<TurnEvent>): AsyncGenerator<Frame> {
  for await (const event of events) yield { data: JSON.stringify(event) };
  yield { data: '[DONE]' };
}

export interface TestServer {
  readonly port: number;
  readonly state: ModelState;
  readonly queue: AdmissionQueue;
  readonly stop: AbortController;
  readonly log: string[];
}

export interface TestOptions extends Partial<AppParts> {
  readonly change?: Partial<ServerSettings>;
  readonly run?: Run;
  readonly loading?: boolean;
}

const noRun: Run = () => {
  throw new RequestError('EMPTY_PROMPT', 'this test runs nothing');
};

/** Listens on a free port until the test ends. */
export async function startTestServer(options: TestOptions = {}): Promise<TestServer> {
  const settings = { ...DEFAULT_SETTINGS, modelId: 'test-model', version: '1.2.3', port: 0, ...options.change };
  const queue = new AdmissionQueue({ ...settings, capacity: settings.slots });
  const state = new ModelState();
  if (!options.loading) state.ready(testEngine, testRunner(options.run ?? noRun));
  const stop = new AbortController();
  const log: string[] = [];
  const { app, servers } = await createApp({
    settings,
    state,
    queue,
    stop: stop.signal,
    token: null,
    dialects: [echoDialect],
    limits: HTTP_LIMITS,
    logger: { level: 'debug', stream: { write: (line: string) => log.push(line) } },
    ...options,
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  log.length = 0;
  onTestFinished(async () => {
    for (const server of servers) server.closeAllConnections();
    await app.close();
  });
  return { port: (servers[0].address() as AddressInfo).port, state, queue, stop, log };
}

export interface Answer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into it as they like
  readonly json: any;
}

export interface Ask {
  readonly method?: string;
  readonly headers?: http.OutgoingHttpHeaders;
  /** An object is sent as JSON, anything else as it is. */
  readonly body?: unknown;
}

/** One request on a connection of its own. The path is sent as it is. */
export function ask(port: number, path: string, { method, headers = {}, body }: Ask = {}): Promise<Answer> {
  const isRaw = typeof body === 'string' || body instanceof Uint8Array;
  const content = body === undefined || isRaw ? (body as string | undefined) : JSON.stringify(body);
  const type = content === undefined ? {} : { 'content-type': 'application/json' };
  const { promise, resolve, reject } = Promise.withResolvers<Answer>();
  const request = http.request(
    {
      port,
      path,
      method: method ?? (content === undefined ? 'GET' : 'POST'),
      headers: { ...type, ...headers },
      agent: false,
    },
    response => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', piece => (text += piece));
      response.on('error', reject);
      response.on('end', () => {
        const isJson = String(response.headers['content-type']).includes('application/json') && text !== '';
        const { statusCode, headers: sent } = response;
        resolve({ status: statusCode!, headers: sent, text, json: isJson ? JSON.parse(text) : null });
      });
    },
  );
  request.on('error', reject);
  request.end(content);
  return promise;
}

/** Writes raw pieces to a connection, one after the other, and returns everything that came until it was closed. */
export async function rawExchange(port: number, pieces: readonly string[], end = true): Promise<string> {
  const socket = net.connect(port, '127.0.0.1');
  let text = '';
  socket.on('data', piece => (text += piece));
  const closed = new Promise<void>(resolve => socket.once('close', () => resolve()));
  socket.on('error', () => {});
  for (const piece of pieces) {
    if (socket.destroyed) break;
    await new Promise<void>(resolve => socket.write(piece, () => resolve()));
  }
  if (end) socket.end();
  await closed;
  return text;
}
