/** What a server says instead of an answer, and whether asking again can help. */

import { RequestError } from '../common/errors.ts';
import { field, stringField } from './json-fields.ts';
import { CHECK_ADDRESS, type JsonReply } from './server-client.ts';

/** Without a Retry-After, and the least: a server that says 0 is not to be asked a thousand times a second. */
const RETRY_MS = 1000;
/** A server that asks for more is asked again after this; the user can give up at any time. */
const MAX_RETRY_MS = 10 * 60 * 1000;
/** Of a server's message; a longer one is no message. */
const MAX_MESSAGE_CHARACTERS = 2000;

export interface Refusal {
  readonly error: RequestError;
  /** `loading`: as soon as the model is there; `busy`: after `retryMs`; `never`: not with the same request. */
  readonly again: 'loading' | 'busy' | 'never';
  readonly retryMs: number;
}

/** Next steps of a chat, in place of the server's own, which are for programs. */
const HINTS: Readonly<Record<string, { readonly inPlaceOf: RegExp; readonly hint: string }>> = {
  model_not_found: { inPlaceOf: /; ask for ".*$/s, hint: 'to talk with another model, start a new chat' },
  context_length_exceeded: {
    inPlaceOf: /; shorten the prompt.*$/s,
    hint: 'the message was not answered and the conversation is kept: take turns back with :undo, or forget all with :reset',
  },
};

/** From an answer whose status is not 200. `base`: the server's address. */
export function refusal({ status, headers, json }: JsonReply, base: string, hasKey: boolean): Refusal {
  const body = field(json, 'error');
  const code = stringField(body, 'code');
  const message = stringField(body, 'message');
  const retryMs = retryAfter(headers['retry-after']);
  const result = (error: RequestError, again: Refusal['again'] = 'never') => ({ error, again, retryMs });
  if (status === 401) return result(badKey(base, hasKey));
  if (message === null) {
    const what =
      status >= 300 && status < 400 ? elsewhere(headers.location, base) : notColibri(base, `status ${status}`);
    return result(what, status === 429 ? 'busy' : 'never');
  }
  const again = code === 'model_loading' ? 'loading' : status === 429 ? 'busy' : 'never';
  return result(saidByServer(message, code), again);
}

/** An `error` object of the API, in an answer or in the middle of a stream, in the server's own words. */
export function saidByServer(message: string, code: string | null): RequestError {
  const own = Object.hasOwn(HINTS, code ?? '') ? HINTS[code ?? ''] : null;
  const text = message.slice(0, MAX_MESSAGE_CHARACTERS).replace(own?.inPlaceOf ?? '', '');
  return new RequestError(code?.toUpperCase() ?? 'SERVER_ERROR', `the server says: ${text}`, { hint: own?.hint });
}

export function notColibri(base: string, why: string): RequestError {
  return new RequestError('NOT_COLIBRI', `what answers at ${base} is not a colibri server (${why})`, {
    hint: CHECK_ADDRESS,
  });
}

function badKey(base: string, hasKey: boolean): RequestError {
  const what = hasKey ? 'does not accept this API key' : 'asks for an API key';
  return new RequestError('INVALID_API_KEY', `${base} ${what}`, {
    hint: 'give the key that it was started with as --api-key or COLI_API_KEY',
  });
}

/** A redirection is not followed: the key is for the address that the user gave. */
function elsewhere(location: string | undefined, base: string): RequestError {
  const where = location === undefined ? 'another address' : location.slice(0, MAX_MESSAGE_CHARACTERS);
  return new RequestError('NOT_COLIBRI', `${base} points to ${where}`, { hint: 'give that address to --attach' });
}

/** Milliseconds from a header with seconds or a date. */
function retryAfter(header: string | undefined, nowMs = Date.now()): number {
  const text = header?.trim() ?? '';
  const ms = /^\d{1,9}$/.test(text) ? Number(text) * 1000 : Date.parse(text) - nowMs;
  return Number.isNaN(ms) ? RETRY_MS : Math.min(Math.max(ms, RETRY_MS), MAX_RETRY_MS);
}
