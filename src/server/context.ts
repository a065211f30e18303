/** The server as dialects see it. */

import { createHash } from 'node:crypto';
import { RequestError } from '../common/errors.ts';
import type { RouteParts } from './app.ts';
import type { DialectContext } from './dialect.ts';
import type { ServerSettings } from './settings.ts';
import { sendStream, whileConnected } from './sse.ts';
import type { ModelState } from './state.ts';
import type { TurnRunner } from './turn.ts';

/** What a client says of itself is kept only as a short digest. */
const CLIENT_DIGITS = 16;

export function createContext({ settings, state, metrics }: RouteParts, stop: AbortSignal): DialectContext {
  const streamSettings = {
    keepaliveMs: settings.keepaliveMs,
    comments: settings.keepaliveComments,
    stallMs: settings.stallMs,
    stop,
  };
  const observed = new WeakMap<TurnRunner, TurnRunner>();
  return {
    settings,
    runner: () => {
      const { runner } = state;
      if (!observed.has(runner)) observed.set(runner, metrics.observed(watched(runner, state)));
      return observed.get(runner)!;
    },
    requireModel: model => requireModel(model, settings),
    client: (request, user) => {
      // programs on one machine share its address; their names tell them apart
      const who = [request.ip, request.headers['user-agent'] ?? '', user ?? ''].join('\n');
      return createHash('sha256').update(who).digest('hex').slice(0, CLIENT_DIGITS);
    },
    stream: (request, reply, makeFrames, options) => sendStream(request, reply, streamSettings, makeFrames, options),
    whole: (reply, work) => whileConnected(reply, stop, work),
  };
}

/** The same turns; the death of the engine becomes known through the first that meets it. */
function watched(runner: TurnRunner, state: ModelState): TurnRunner {
  return {
    fingerprint: runner.fingerprint,
    check: (request, signal) => runner.check(request, signal),
    countTokens: turn => runner.countTokens(turn),
    promptText: turn => runner.promptText(turn),
    async *run(request, signal) {
      try {
        yield* runner.run(request, signal);
      } catch (error) {
        state.noteFailure(error);
        throw error;
      }
    },
  };
}

/** The id to answer with. Throws MODEL_NOT_FOUND unless `model` is missing, empty or one of the names that are served. */
export function requireModel(model: string | null | undefined, { modelId, modelAliases }: ServerSettings): string {
  if (model === undefined || model === null || model === '') return modelId;
  if (model === modelId || modelAliases.includes(model)) return modelId;
  throw unknownModel(model, modelId);
}

export function unknownModel(model: string, served: string): RequestError {
  return new RequestError('MODEL_NOT_FOUND', `this server has no model ${JSON.stringify(model.slice(0, 200))}`, {
    hint: `ask for "${served}", or leave the model out`,
    details: { parameter: 'model' },
  });
}
