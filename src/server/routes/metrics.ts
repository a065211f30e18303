/** GET /metrics and /openapi.json: the server about itself. */

import * as z from 'zod';
import type { RouteParts } from '../app.ts';
import type { App } from '../dialect.ts';
import { commonErrors } from '../schemas.ts';

export function metricsRoutes(app: App, { metrics }: RouteParts): void {
  app.get(
    '/metrics',
    {
      schema: {
        tags: ['Server'],
        operationId: 'getMetrics',
        summary: 'Counters for Prometheus',
        response: { 200: { content: { 'text/plain': { schema: z.string() } } }, ...commonErrors },
      },
    },
    async (_request, reply) =>
      reply
        .type(metrics.contentType)
        .serializer(String)
        .send(await metrics.text()),
  );
  app.get(
    '/openapi.json',
    {
      schema: {
        tags: ['Server'],
        operationId: 'getOpenApi',
        summary: 'This API as an OpenAPI 3.1 document',
        response: { 200: z.record(z.string(), z.unknown()), ...commonErrors },
      },
    },
    async (_request, reply) =>
      reply
        .type('application/json; charset=utf-8')
        .serializer(JSON.stringify)
        .send(app.swagger() as Record<string, unknown>),
  );
}
