/** A path nobody serves is 404, a method nobody serves there is 405 with the ones that are. */

import type { FastifyRequest } from 'fastify';
import { RequestError } from '../common/errors.ts';
import type { App } from './dialect.ts';

/** Path pattern -> methods. */
export type RouteTable = ReadonlyMap<string, ReadonlySet<string>>;

/** Notes the routes that are added from now on. */
export function watchRoutes(app: App): RouteTable {
  const table = new Map<string, Set<string>>();
  app.addHook('onRoute', ({ url, method }) => {
    // the route of preflights answers to every path
    if (url === '*') return;
    const methods = table.get(url) ?? new Set<string>();
    table.set(url, methods);
    for (const name of [method].flat()) methods.add(name);
  });
  return table;
}

export function unknownRoute({ method, url }: FastifyRequest, table: RouteTable): RequestError {
  const path = url.replace(/\?.*$/s, '');
  const shown = JSON.stringify(path.slice(0, 200)).slice(1, -1);
  for (const [pattern, methods] of table) {
    if (!matches(path, pattern)) continue;
    const allowed = [...methods].join(', ');
    return new RequestError('METHOD_NOT_ALLOWED', `${method} is not possible at ${shown}`, {
      hint: `use ${allowed}`,
      details: { allowed },
    });
  }
  return new RequestError('UNKNOWN_ROUTE', `there is no ${shown} here`, {
    hint: 'GET /openapi.json lists the routes',
  });
}

function matches(path: string, pattern: string): boolean {
  const steps = pattern.split('/');
  const parts = path.split('/');
  return (
    steps.length === parts.length &&
    steps.every((step, i) => (step.startsWith(':') ? parts[i] !== '' : step === parts[i]))
  );
}
