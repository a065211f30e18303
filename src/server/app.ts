/** The application: what every request passes, and the routes. Knows neither sockets nor signals; lifecycle.ts does. */

import type { RequestListener, Server } from 'node:http';
import type { Socket } from 'node:net';
import cors from '@fastify/cors';
import helmet from '@fastify/helmet';
import swagger from '@fastify/swagger';
import Fastify, { type FastifyReply, type FastifyRequest, type FastifyServerOptions, LogController } from 'fastify';
import { serializerCompiler, validatorCompiler } from 'fastify-type-provider-zod';
import { ColiError, RequestError } from '../common/errors.ts';
import { MIB } from '../common/units.ts';
import type { AdmissionQueue } from './admission.ts';
import { KeyRing } from './auth.ts';
import { BodyBudget } from './body-budget.ts';
import { createContext } from './context.ts';
import type { App, Dialect } from './dialect.ts';
import { type HttpError, openAiErrorBody, toHttpError } from './errors.ts';
import { checkSource } from './hosts.ts';
import { answerBadRequest, createHttpServer, HTTP_LIMITS, type HttpLimits, newRequestId } from './http-server.ts';
import { parseBody } from './json-body.ts';
import { Metrics } from './metrics.ts';
import { unknownRoute, watchRoutes } from './not-found.ts';
import { openApiOptions } from './openapi.ts';
import { errorCode, noteError } from './outcome.ts';
import { healthRoute } from './routes/health.ts';
import { metricsRoutes } from './routes/metrics.ts';
import { modelRoutes } from './routes/models.ts';
import { profileRoutes } from './routes/profile.ts';
import { propsRoute } from './routes/props.ts';
import { textRoutes } from './routes/text.ts';
import type { ServerSettings } from './settings.ts';
import type { ModelState } from './state.ts';

/** A prompt of a million characters with its history and tools; the same limit as other servers have. */
const MAX_BODY_BYTES = 4 * MIB;
/** Of a body that is too large, so much is passed over, for the client's sake; more ends the connection. */
const MAX_PASSED_OVER_BYTES = 64 * MIB;
/** A model id in a path; paths are short. */
const MAX_PARAMETER_CHARACTERS = 256;

const PREFLIGHT_SECONDS = 600;

export interface AppParts {
  readonly settings: ServerSettings;
  readonly state: ModelState;
  readonly queue: AdmissionQueue;
  /** Aborted, with the error to tell, when running requests have to end. */
  readonly stop: AbortSignal;
  /** Lets programs of the same user in besides the API key. */
  readonly token: string | null;
  readonly dialects: readonly Dialect[];
  readonly logger?: FastifyServerOptions['logger'];
  readonly limits?: HttpLimits;
}

/** What routes other than the dialects' are given. */
export interface RouteParts {
  readonly settings: ServerSettings;
  readonly state: ModelState;
  readonly queue: AdmissionQueue;
  readonly keys: KeyRing;
  readonly metrics: Metrics;
}

export interface ServerApp {
  readonly app: App;
  /** One for each address it listens on; the first is the application's own. */
  readonly servers: readonly Server[];
  /** A further one, for a further address. */
  addServer(): Server;
  /** Resolves when no request is being answered. */
  idle(): Promise<void>;
}

export async function createApp(parts: AppParts): Promise<ServerApp> {
  const { settings, state, queue, dialects } = parts;
  const servers: Server[] = [];
  const app = newFastify(parts, servers);
  const running = new Running();
  const keys = new KeyRing(settings.apiKey, parts.token);
  const metrics = new Metrics(queue, state, settings);
  const routeParts: RouteParts = { settings, state, queue, keys, metrics };
  app.addHook('onClose', () => metrics.close());
  const routes = watchRoutes(app);
  observe(app, parts, metrics, servers, running);
  // before any route, that of preflights included
  app.setErrorHandler((error, request, reply) => {
    const dialect = dialects.find(({ speaks }) => speaks?.(request));
    return errorHandler(dialect?.errorBody ?? openAiErrorBody, state)(error, request, reply);
  });
  await guard(app, parts, keys);
  readBodies(app, new BodyBudget(MAX_BODY_BYTES), settings);
  app.setNotFoundHandler(request => {
    throw unknownRoute(request, routes);
  });

  await app.register(swagger, openApiOptions(settings));
  for (const add of [healthRoute, modelRoutes, propsRoute, metricsRoutes, profileRoutes, textRoutes])
    add(app, routeParts);
  for (const dialect of dialects) {
    await app.register(async scope => {
      scope.setErrorHandler(errorHandler(dialect.errorBody ?? openAiErrorBody, state));
      scope.addHook('onRoute', route => {
        if (route.schema) route.schema = { tags: [dialect.name], ...route.schema };
      });
      dialect.routes(scope as App, createContext(routeParts, parts.stop));
    });
  }
  await app.ready();
  return { app, servers, idle: () => running.idle(), addServer: () => addServer(app, parts, servers) };
}

/** How many requests are being answered. */
class Running {
  #count = 0;
  #whenIdle: (() => void)[] = [];

  add(): void {
    this.#count++;
  }

  remove(): void {
    this.#count--;
    if (this.#count > 0) return;
    for (const tell of this.#whenIdle.splice(0)) tell();
  }

  idle(): Promise<void> {
    return this.#count === 0 ? Promise.resolve() : new Promise(resolve => this.#whenIdle.push(resolve));
  }
}

function addServer(app: App, { limits = HTTP_LIMITS }: AppParts, servers: Server[]): Server {
  const note = (line: string) => app.log.debug(line);
  const server = createHttpServer(app.routing, limits, note);
  server.on('clientError', (error, socket) => answerBadRequest(error, socket as Socket, note));
  servers.push(server);
  return server;
}

function newFastify({ settings, logger, limits = HTTP_LIMITS }: AppParts, servers: Server[]): App {
  const note = (line: string) => app.log.debug(line);
  const serverFactory = (handler: RequestListener) => {
    const server = createHttpServer(handler, limits, note);
    servers.push(server);
    return server;
  };
  const app: App = Fastify({
    logger: logger ?? false,
    // one line of ours for each request instead of two; see `observe`
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request' }),
    serverFactory,
    clientErrorHandler: (error, socket) => answerBadRequest(error, socket as Socket, note),
    frameworkErrors: (error, request, reply) => {
      // a path that is no path: hooks do not run for it
      const wire = toHttpError(failure(() => checkSource(sourceOf(request), rulesOf(settings))) ?? error);
      request.log.info(
        { method: request.method, route: 'unknown', ms: 0, status: wire.status, code: wire.code },
        'request',
      );
      const plain = reply as FastifyReply;
      plain.header('x-request-id', request.id).code(wire.status).send(openAiErrorBody(wire));
    },
    genReqId: newRequestId,
    bodyLimit: MAX_BODY_BYTES,
    routerOptions: { maxParamLength: MAX_PARAMETER_CHARACTERS },
    // requests that arrive while the server stops get an error in the usual shape
    return503OnClosing: false,
  });
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  return app;
}

/** Hooks in the order in which a request meets them: where it comes from, the browser's question, the key. */
async function guard(app: App, { settings, queue }: AppParts, keys: KeyRing): Promise<void> {
  app.addHook('onRequest', async (request, reply) => {
    reply.header('x-request-id', request.id);
    checkSource(sourceOf(request), rulesOf(settings));
    if (queue.stopped) {
      reply.header('connection', 'close');
      if (request.routeOptions.url !== '/health') throw queue.stopped;
    }
  });
  await app.register(helmet, {
    contentSecurityPolicy: { useDefaults: false, directives: { defaultSrc: ["'none'"], frameAncestors: ["'none'"] } },
    // TLS is the business of a proxy in front
    hsts: false,
  });
  if (settings.corsOrigins.length > 0) {
    // any headers: clients have many of their own, and who may use the server may send them
    await app.register(cors, {
      origin: [...settings.corsOrigins],
      methods: ['GET', 'POST'],
      exposedHeaders: ['x-request-id', 'retry-after'],
      maxAge: PREFLIGHT_SECONDS,
      strictPreflight: false,
    });
  }
  app.addHook('onRequest', async request => {
    // liveness is for everybody; the route itself decides how much it tells
    if (request.routeOptions.url !== '/health') keys.check(request.headers);
  });
}

/** One log line and one count for each request; prompts only when asked for. */
function observe(
  app: App,
  { settings, queue }: AppParts,
  metrics: Metrics,
  servers: readonly Server[],
  running: Running,
): void {
  if (settings.logPrompts) {
    // before its fields are looked at: one that is refused is the one that is looked for
    app.addHook('preValidation', async ({ body, log }) => {
      if (body !== undefined) log.info({ body }, 'request body');
    });
  }
  app.addHook('onRequest', async (request, reply) => {
    running.add();
    // `close` comes for every answer, also for one that nobody waits for any more
    reply.raw.once('close', () => {
      running.remove();
      const { statusCode: status, writableFinished } = reply.raw;
      const route = request.routeOptions.url ?? 'unknown';
      const facts = { method: request.method, route, ms: Math.round(reply.elapsedTime) };
      // a stream that broke off has begun with 200
      const code = errorCode(request);
      if (writableFinished) request.log.info({ ...facts, status, ...(code && { code }) }, 'request');
      else request.log.debug(facts, 'the client went away');
      metrics.request(route, writableFinished ? status : 499);
      // a connection that was busy when the server began to stop has no further use
      if (queue.stopped) setImmediate(() => servers.forEach(server => void server.closeIdleConnections()));
    });
  });
}

/** JSON only: a form or text/plain can be sent by any web page without a preflight. */
function readBodies(app: App, budget: BodyBudget, { logPrompts }: ServerSettings): void {
  app.addHook('onRequest', async (request, reply) => {
    const release = budget.take(request.headers);
    reply.raw.once('close', release);
  });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, async (request: FastifyRequest, body: Buffer) => {
    const encoding = request.headers['content-encoding'];
    if (encoding === undefined || encoding === 'identity') {
      try {
        return parseBody(body);
      } catch (error) {
        if (logPrompts) request.log.info({ body: body.toString() }, 'request body');
        throw error;
      }
    }
    throw new RequestError('BAD_CONTENT_TYPE', `bodies in content-encoding ${JSON.stringify(encoding)} are not read`, {
      hint: 'send it uncompressed',
    });
  });
  app.addHook('preValidation', async request => {
    // a POST without a content type has no body for Fastify
    if (request.method === 'POST' && request.body === undefined && !request.is404) parseBody(Buffer.of());
  });
}

function errorHandler(errorBody: (error: HttpError, requestId: string) => unknown, state: ModelState) {
  return (error: unknown, request: FastifyRequest, reply: FastifyReply) => {
    const wire = toHttpError(error, request.body);
    noteError(request, wire);
    state.noteFailure(error);
    if (wire.ours) request.log.error({ err: error }, 'a request failed');
    // whoever calls the server by a foreign name has nothing more to say
    if (wire.status === 403) reply.header('connection', 'close');
    if (wire.status === 401) reply.header('www-authenticate', 'Bearer');
    if (error instanceof ColiError && error.code === 'METHOD_NOT_ALLOWED')
      reply.header('allow', error.details['allowed']);
    if (wire.retryAfterSeconds !== null) reply.header('retry-after', String(wire.retryAfterSeconds));
    // closed now, the connection would break while the client still sends, and it would never read why
    if (wire.status === 413 && Number(request.headers['content-length']) <= MAX_PASSED_OVER_BYTES) {
      reply.removeHeader('connection');
    }
    // the reply's own schema is for what succeeds
    reply.code(wire.status).type('application/json; charset=utf-8').serializer(JSON.stringify);
    return reply.send(errorBody(wire, request.id));
  };
}

function sourceOf({ headers, raw }: FastifyRequest) {
  // two hosts are none: whoever stands in between may have looked at the other one
  const [host, ...others] = raw.headersDistinct?.['host'] ?? [headers.host];
  const origin = headers.origin;
  return { host: others.length === 0 ? host : undefined, origin, localAddress: raw.socket.localAddress };
}

function rulesOf({ host, allowedHosts, corsOrigins }: ServerSettings) {
  return { bind: host, allowedHosts, corsOrigins };
}

function failure(action: () => void): unknown {
  try {
    action();
    return null;
  } catch (error) {
    return error;
  }
}
