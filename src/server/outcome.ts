/** Which error a request ended with, for its line in the log: noted where errors become answers, read when the answer has been sent. */

import type { FastifyRequest } from 'fastify';
import type { HttpError } from './errors.ts';

const codes = new WeakMap<FastifyRequest['raw'], string>();

/** Only the code: messages and names of fields may hold parts of what was asked. */
export function noteError({ raw }: FastifyRequest, { code, type }: HttpError): void {
  codes.set(raw, code ?? type);
}

/** Null for a request that went well. */
export function errorCode({ raw }: FastifyRequest): string | null {
  return codes.get(raw) ?? null;
}
