/** The listening side: limits on connections and on slow or malformed requests, before Fastify sees anything. */

import { randomUUID } from 'node:crypto';
import http, { type RequestListener, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { openAiErrorBody } from './errors.ts';

export interface HttpLimits {
  /** Connections at a time; more would only be memory, since few requests run and wait. */
  readonly connections: number;
  /** From one address; a page full of broken streams must not shut out everybody else. */
  readonly connectionsPerAddress: number;
  /** Request line and headers together. */
  readonly headerBytes: number;
  /** For the headers to arrive. */
  readonly headersTimeoutMs: number;
  /** For the whole request to arrive: 4 MiB in that time is a slow telephone line. */
  readonly requestTimeoutMs: number;
  /** An idle connection is kept for so long. */
  readonly keepAliveMs: number;
  /** How often the timeouts above are looked at. */
  readonly checkMs: number;
}

export const HTTP_LIMITS: HttpLimits = {
  connections: 512,
  connectionsPerAddress: 128,
  headerBytes: 16 * 1024,
  headersTimeoutMs: 15_000,
  requestTimeoutMs: 60_000,
  keepAliveMs: 60_000,
  checkMs: 1_000,
};

/** Requests on one connection before it is closed, so that no connection lives for ever. */
const MAX_REQUESTS_PER_CONNECTION = 1000;

/** `note` gets one line about a connection that was refused or cut. */
export function createHttpServer(handler: RequestListener, limits: HttpLimits, note: (line: string) => void): Server {
  const server = http.createServer(
    {
      maxHeaderSize: limits.headerBytes,
      headersTimeout: limits.headersTimeoutMs,
      requestTimeout: limits.requestTimeoutMs,
      keepAliveTimeout: limits.keepAliveMs,
      connectionsCheckingInterval: limits.checkMs,
      noDelay: true,
      // the Host check does it, in JSON
      requireHostHeader: false,
    },
    handler,
  );
  server.maxConnections = limits.connections;
  server.maxRequestsPerSocket = MAX_REQUESTS_PER_CONNECTION;
  limitPerAddress(server, limits.connectionsPerAddress, note);
  return server;
}

function limitPerAddress(server: Server, most: number, note: (line: string) => void): void {
  const open = new Map<string, number>();
  server.on('connection', (socket: Socket) => {
    const address = socket.remoteAddress ?? '';
    const count = (open.get(address) ?? 0) + 1;
    if (count > most) {
      note(`refused a connection of ${address}: it has ${most} already`);
      refuse(socket, 429, 'too_many_connections', `this address has ${most} connections already; close some`);
      return;
    }
    open.set(address, count);
    socket.once('close', () => {
      const left = open.get(address)! - 1;
      if (left > 0) open.set(address, left);
      else open.delete(address);
    });
  });
}

/** Answers what is no HTTP request, or came too slowly. One line of log, because half of them are port scanners. */
export function answerBadRequest(error: NodeJS.ErrnoException, socket: Socket, note: (line: string) => void): void {
  if (error.code === 'ECONNRESET' || socket.destroyed) return;
  note(`a connection was cut: ${error.code ?? error.message}`);
  if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT') {
    refuse(socket, 408, 'request_timeout', 'the request did not arrive in time');
  } else if (error.code === 'HPE_HEADER_OVERFLOW') {
    refuse(socket, 431, 'headers_too_large', 'the URL and the headers are too large');
  } else refuse(socket, 400, 'bad_request', 'this is not a well-formed HTTP request');
}

function refuse(socket: Socket, status: number, code: string, message: string): void {
  const type = status === 429 ? 'rate_limit_error' : 'invalid_request_error';
  const body = JSON.stringify(
    openAiErrorBody({ status, type, code, message, param: null, retryAfterSeconds: null, ours: false }),
  );
  const head = [
    `HTTP/1.1 ${status} ${http.STATUS_CODES[status]}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${newRequestId()}`,
    'connection: close',
  ];
  socket.on('error', () => {});
  if (socket.writable) socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
  else socket.destroy();
}

export function newRequestId(): string {
  return `req_${randomUUID().replaceAll('-', '')}`;
}
