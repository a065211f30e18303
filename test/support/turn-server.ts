/** The real application on a real port, with a scripted model behind it. */

import type { AddressInfo } from 'node:net';
import { AdmissionQueue } from '../../src/server/admission.ts';
import { createApp } from '../../src/server/app.ts';
import type { App, Dialect } from '../../src/server/dialect.ts';
import { DEFAULT_SETTINGS, type ServerSettings } from '../../src/server/settings.ts';
import { ModelState } from '../../src/server/state.ts';
import type { ChatTurn, TurnEvent, TurnRequest, TurnRunner, TurnUsage } from '../../src/server/turn.ts';

export type Script = (request: TurnRequest, signal: AbortSignal) => AsyncIterable<TurnEvent>;

export const USAGE: TurnUsage = { promptTokens: 20, cachedTokens: 12, completionTokens: 7, reasoningTokens: 3 };

export interface TurnServer {
  readonly app: App;
  readonly url: string;
  /** What the dialect asked for, in order. */
  readonly requests: TurnRequest[];
  readonly counted: ChatTurn[];
  /** What the next requests are answered with. */
  script: Script;
  close(): Promise<void>;
}

/** A script that yields `events` between `accepted` and `end`. */
export function answers(events: readonly TurnEvent[], end: Partial<Extract<TurnEvent, { type: 'end' }>> = {}): Script {
  return async function* () {
    yield { type: 'accepted', promptTokens: USAGE.promptTokens };
    yield* events;
    yield { type: 'end', finish: 'stop', stopSequence: null, usage: USAGE, ...end };
  };
}

/** A script that throws `error` behind `events`; without events before `accepted`. */
export function fails(error: unknown, events: readonly TurnEvent[] = []): Script {
  return async function* () {
    yield* events;
    throw error;
  };
}

/** Yields `events`, then waits until the request is given up; `aborted` resolves then. */
export function hangs(events: readonly TurnEvent[]): { script: Script; aborted: Promise<void> } {
  const aborted = Promise.withResolvers<void>();
  const script: Script = async function* (_request, signal) {
    signal.addEventListener('abort', () => aborted.resolve());
    yield { type: 'accepted', promptTokens: USAGE.promptTokens };
    yield* events;
    await aborted.promise;
    throw signal.reason;
  };
  return { script, aborted: aborted.promise };
}

export async function startTurnServer(
  dialects: readonly Dialect[],
  changes: Partial<ServerSettings> = {},
): Promise<TurnServer> {
  const settings: ServerSettings = { ...DEFAULT_SETTINGS, modelId: 'nano', version: '0.0.0', ...changes };
  const state = new ModelState();
  const queue = new AdmissionQueue({ ...settings, capacity: settings.slots });
  const requests: TurnRequest[] = [];
  const counted: ChatTurn[] = [];
  const runner: TurnRunner = {
    fingerprint: 'fp_test',
    run(request, signal) {
      requests.push(request);
      return server.script(request, signal);
    },
    check: async () => {},
    countTokens: async turn => {
      counted.push(turn);
      return 42;
    },
    promptText: async turn => JSON.stringify(turn.messages),
  };
  state.ready({} as never, runner);
  const stop = new AbortController();
  const { app } = await createApp({ settings, state, queue, stop: stop.signal, token: null, dialects });
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const server: TurnServer = {
    app,
    url: `http://127.0.0.1:${port}`,
    requests,
    counted,
    script: answers([{ type: 'text', text: 'Hello' }]),
    close: () => app.close(),
  };
  return server;
}
