/** API keys: one for clients, and the token of the runtime file for programs of the same user. */

import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { RequestError } from '../common/errors.ts';

export class KeyRing {
  /** Digests: equally long whatever the key, so that the comparison takes the same time. */
  readonly #accepted: readonly Buffer[];

  /** Without an API key everybody is let in, whatever key they send: many clients insist on sending one. */
  constructor(apiKey: string | null, token: string | null) {
    this.#accepted = apiKey === null ? [] : [apiKey, ...(token === null ? [] : [token])].map(digest);
  }

  get open(): boolean {
    return this.#accepted.length === 0;
  }

  accepts(headers: IncomingHttpHeaders): boolean {
    if (this.open) return true;
    const key = keyOf(headers);
    if (key === null) return false;
    const sent = digest(key);
    // every key is compared, so that the time does not tell which one was near
    return this.#accepted.map(known => timingSafeEqual(known, sent)).includes(true);
  }

  /** Throws INVALID_API_KEY. */
  check(headers: IncomingHttpHeaders): void {
    if (this.accepts(headers)) return;
    const what = keyOf(headers) === null ? 'this server asks for an API key' : 'the API key is not the right one';
    throw new RequestError('INVALID_API_KEY', what, {
      hint: 'send the key of --api-key as "Authorization: Bearer KEY" or "x-api-key: KEY"',
    });
  }
}

function keyOf(headers: IncomingHttpHeaders): string | null {
  const bearer = /^Bearer +(\S.*)$/i.exec(headers.authorization ?? '');
  if (bearer) return bearer[1].trim();
  const key = headers['x-api-key'];
  return typeof key === 'string' && key !== '' ? key : null;
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
