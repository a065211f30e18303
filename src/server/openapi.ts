/** The OpenAPI document: what the routes' schemas say, with what holds for all of them, in a form that generators of clients read. */

import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger';
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod';
import type { ServerSettings } from './settings.ts';

interface Schema {
  readonly $ref?: string;
  readonly properties?: Readonly<Record<string, unknown>>;
}
interface Content {
  readonly schema: Schema;
}
interface Reply {
  description?: string;
  readonly $ref?: string;
  readonly content?: Record<string, Content>;
}
interface Operation {
  readonly summary: string;
  security?: unknown[];
  readonly requestBody?: { readonly content: { readonly 'application/json': Content } };
  readonly responses: Record<string, Reply>;
}
interface Document {
  readonly paths: Record<string, Record<string, Operation>>;
  readonly components: { schemas: Record<string, Schema>; responses?: Record<string, Reply> };
}

/** What a status means, on whichever route. */
const STATUSES: Readonly<Record<string, string>> = {
  400: 'The request is wrong, or asks for what is not supported; the message names the field and the next step.',
  401: 'No API key, or a wrong one.',
  403: 'A host name or a web page that is not allowed.',
  404: 'No such model.',
  408: 'The request did not arrive in time.',
  413: 'The body is too large.',
  415: 'The body is not application/json.',
  429: 'Too many requests wait, or this one waited too long; see retry-after.',
  431: 'The URL and the headers are too large.',
  500: 'The server failed; its log has the reason.',
  503: 'The model is still loading or cannot be used, or the server is stopping.',
};
const OF_ALL = [400, 401, 403, 431, 500, 503];
const OF_BODIES = [408, 413, 415, 429];
/** Answered before it is known which API the client speaks. */
const BELOW_ROUTES = [408, 431];

const SCHEMAS = '#/components/schemas/';
const ERROR: Schema = { $ref: `${SCHEMAS}Error` };
/** How zod writes "a whole number that JavaScript can hold". */
const SAFE_BOUNDS: ReadonlySet<unknown> = new Set([Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER]);

export function openApiOptions({ apiKey, version }: ServerSettings): FastifyDynamicSwaggerOptions {
  const schemes: Record<string, string[]>[] = [{ bearer: [] }, { apiKey: [] }];
  return {
    openapi: {
      openapi: '3.1.0',
      info: { title: 'Colibrì', description: 'A local model behind familiar APIs', version },
      servers: [{ url: '/', description: 'The server that this document is from' }],
      components: {
        securitySchemes: {
          bearer: { type: 'http', scheme: 'bearer', description: 'The key of --api-key.' },
          apiKey: { type: 'apiKey', in: 'header', name: 'x-api-key', description: 'The same key.' },
        },
      },
      // the empty one: without --api-key none is needed
      security: apiKey === null ? [{}, ...schemes] : schemes,
    },
    transform: jsonSchemaTransform,
    transformObject: document => complete(jsonSchemaTransformObject(document) as unknown as Document) as never,
  };
}

function complete(document: Document): Document {
  for (const [path, operations] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(operations)) completeOperation(document, path, method, operation);
  }
  return withPlainNames(withoutUnused(withoutSafeBounds(document)));
}

function completeOperation({ components }: Document, path: string, method: string, operation: Operation): void {
  const { requestBody, responses, summary } = operation;
  const body = requestBody?.content['application/json'].schema;
  const fields = (body?.$ref ? components.schemas[body.$ref.slice(SCHEMAS.length)] : body)?.properties ?? {};
  const found = responses[200];
  found.description = `${summary}.`;
  // /apply-template takes the body of a chat, and streams nothing
  if ('stream' in fields && path.startsWith('/v1/')) {
    found.description += ' With stream: server-sent events.';
    found.content!['text/event-stream'] = { schema: { type: 'string' } as Schema };
  }
  const isHealth = path === '/health';
  if (isHealth) operation.security = [];
  const statuses = [...OF_ALL, ...(method === 'post' ? OF_BODIES : []), ...('model' in fields ? [404] : [])];
  const own = responses[400]?.content?.['application/json'].schema ?? ERROR;
  for (const status of new Set([...statuses.map(String), ...Object.keys(responses)])) {
    if (status === '200' || (isHealth && status === '401')) continue;
    if (isHealth && status === '503') responses[status].description = STATUSES[status];
    else responses[status] = sharedReply(components, status, BELOW_ROUTES.includes(Number(status)) ? ERROR : own);
  }
}

function sharedReply(components: Document['components'], status: string, schema: Schema): Reply {
  const name = schema.$ref!.slice(SCHEMAS.length) + status;
  components.responses ??= {};
  components.responses[name] = { description: STATUSES[status], content: { 'application/json': { schema } } };
  return { $ref: `#/components/responses/${name}` };
}

function withoutSafeBounds(document: Document): Document {
  const text = JSON.stringify(document, (key, value) => {
    return (key === 'maximum' || key === 'minimum') && SAFE_BOUNDS.has(value) ? undefined : value;
  });
  return JSON.parse(text);
}

/** Each shape comes once for requests and once for replies; most are used for one of them. */
function withoutUnused(document: Document): Document {
  const { schemas } = document.components;
  for (let before = -1; before !== Object.keys(schemas).length; ) {
    before = Object.keys(schemas).length;
    const text = JSON.stringify(document);
    for (const name of Object.keys(schemas)) if (!text.includes(`"${SCHEMAS}${name}"`)) delete schemas[name];
  }
  return document;
}

/** A shape of requests is called `<name>Input` for a shape of replies that may not be there. */
function withPlainNames(document: Document): Document {
  let text = JSON.stringify(document);
  for (const name of Object.keys(document.components.schemas)) {
    const plain = name.replace(/Input$/, '');
    if (plain === name || plain in document.components.schemas) continue;
    text = text.replaceAll(`"${SCHEMAS}${name}"`, `"${SCHEMAS}${plain}"`).replace(`"${name}":`, `"${plain}":`);
  }
  return JSON.parse(text);
}
