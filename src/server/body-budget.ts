/** Memory for request bodies: so much for all requests that are being read or answered, because each keeps its own to the end. */

import type { IncomingHttpHeaders } from 'node:http';
import { RequestError } from '../common/errors.ts';
import { MIB } from '../common/units.ts';

/** Thousands of ordinary requests, or sixteen with a megabyte each; parsed, a body takes several times its size. */
export const MAX_BODIES_BYTES = 16 * MIB;

export class BodyBudget {
  #bytes = 0;
  readonly #unknownBytes: number;
  readonly #mostBytes: number;

  /** A body of unknown length counts as `unknownBytes`, the most it may have. */
  constructor(unknownBytes: number, mostBytes = MAX_BODIES_BYTES) {
    this.#unknownBytes = unknownBytes;
    this.#mostBytes = mostBytes;
  }

  /** Returns what gives the bytes back. Throws BODIES_TOO_LARGE. */
  take(headers: IncomingHttpHeaders): () => void {
    const bytes = this.#bytesOf(headers);
    if (bytes > 0 && this.#bytes + bytes > this.#mostBytes) {
      throw new RequestError('BODIES_TOO_LARGE', 'the requests that run and wait have very large bodies', {
        hint: 'try again when some of them have ended',
      });
    }
    this.#bytes += bytes;
    return () => {
      this.#bytes -= bytes;
    };
  }

  /** One that is too large is refused elsewhere, before it is read. */
  #bytesOf(headers: IncomingHttpHeaders): number {
    if (headers['transfer-encoding'] !== undefined) return this.#unknownBytes;
    const length = Number(headers['content-length'] ?? 0);
    return length <= this.#unknownBytes ? length : 0;
  }
}
