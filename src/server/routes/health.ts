/** GET /health: whether requests can be answered now. Everybody may ask; numbers are for those with the key. */

import * as z from 'zod';
import type { RouteParts } from '../app.ts';
import type { App } from '../dialect.ts';
import { toHttpError } from '../errors.ts';
import { ErrorReply } from '../schemas.ts';

const Queue = z
  .object({
    active: z.int(),
    queued: z.int(),
    capacity: z.int(),
    max_queue: z.int(),
    admitted: z.int(),
    completed: z.int(),
    rejected: z.int(),
    timed_out: z.int(),
    cancelled: z.int(),
  })
  .describe('Requests: running, waiting, and counted since the start');

const Ready = z.object({
  status: z.literal('ok'),
  queue: Queue.optional(),
  slots: z.int().optional().describe('Requests that run together'),
});

const NotReady = z.object({
  status: z.enum(['loading', 'error', 'stopping']),
  progress: z
    .object({ phase: z.string(), done_bytes: z.number(), total_bytes: z.number() })
    .optional()
    .describe('How far loading is'),
  error: ErrorReply.shape.error.optional(),
});

const RETRY_SECONDS = '1';

export function healthRoute(app: App, { state, queue, keys, settings }: RouteParts): void {
  app.get(
    '/health',
    {
      schema: {
        tags: ['Server'],
        operationId: 'getHealth',
        summary: 'Whether the server can answer requests; needs no key',
        response: { 200: Ready, 503: NotReady, 403: ErrorReply },
      },
    },
    async (request, reply) => {
      const trusted = keys.accepts(request.headers);
      const { phase } = state;
      if (phase.name === 'ready' && !queue.stopped) {
        const { maxQueue, timedOut, ...counts } = queue.counts;
        const numbers = { ...counts, max_queue: maxQueue, timed_out: timedOut };
        return { status: 'ok' as const, ...(trusted && { queue: numbers, slots: settings.slots }) };
      }
      reply.code(503);
      if (queue.stopped) return { status: 'stopping' as const };
      if (phase.name === 'failed') {
        const { message, type, param, code } = toHttpError(phase.error);
        return { status: 'error' as const, ...(trusted && { error: { message, type, param, code } }) };
      }
      reply.header('retry-after', RETRY_SECONDS);
      if (phase.name !== 'loading' || !trusted) return { status: 'loading' as const };
      const { phase: step, doneBytes, totalBytes } = phase.progress;
      const progress = { phase: step, done_bytes: doneBytes, total_bytes: totalBytes };
      return { status: 'loading' as const, progress };
    },
  );
}
