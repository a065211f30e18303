/**
 * Requests to a server, without any limit on how long an answer may take: it may wait in a queue for minutes before its first
 * byte, which is why this is not `fetch`, whose limit of five minutes cannot be changed without a package.
 */

import http, { type IncomingMessage } from 'node:http';
import https from 'node:https';
import { ColiError, RequestError } from '../common/errors.ts';
import { MIB } from '../common/units.ts';
import type { AttachTarget } from './attach-target.ts';
import { parseJson } from './json-fields.ts';
import { packageVersion } from './model.ts';

export interface ClientLimits {
  /** For a connection to be made: a machine that is there needs milliseconds. */
  readonly connectMs: number;
  /** For a question that needs no model; a busy server answers it too. */
  readonly questionMs: number;
}
const LIMITS: ClientLimits = { connectMs: 10_000, questionMs: 30_000 };
/** A silent connection is tried after this, so that a machine that has gone is noticed. */
const TCP_KEEPALIVE_MS = 15_000;
/** Of an answer in JSON: the largest is /props with its chat template. */
const MAX_JSON_BYTES = 4 * MIB;

export const CHECK_ADDRESS = 'compare the address with the one that coli serve printed';

/** Whole answers, read as JSON; `json` is null for what is none. */
export interface JsonReply {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  readonly json: unknown;
}

export class ServerClient {
  readonly base: string;
  readonly #key: string | null;
  readonly #others: readonly string[];
  readonly #limits: ClientLimits;

  constructor({ base, key, others }: AttachTarget, limits = LIMITS) {
    this.base = base;
    this.#key = key;
    this.#others = others;
    this.#limits = limits;
  }

  get hasKey(): boolean {
    return this.#key !== null;
  }

  async get(path: string, signal: AbortSignal): Promise<JsonReply> {
    const late = AbortSignal.timeout(this.#limits.questionMs);
    try {
      const response = await this.#send('GET', path, undefined, AbortSignal.any([signal, late]));
      return await this.read(response);
    } catch (error) {
      if (!late.aborted || signal.aborted) throw error;
      throw new RequestError(
        'SERVER_SILENT',
        `${this.base} did not answer within ${this.#limits.questionMs / 1000} s`,
        {
          hint: 'it may be overloaded or no HTTP server',
        },
      );
    }
  }

  /** Resolves with the head of the answer; its body is still to come, and destroying it ends the request. */
  post(path: string, body: unknown, signal: AbortSignal): Promise<IncomingMessage> {
    return this.#send('POST', path, JSON.stringify(body), signal);
  }

  /** The rest of an answer that is one piece. */
  async read(response: IncomingMessage): Promise<JsonReply> {
    const parts: Buffer[] = [];
    let bytes = 0;
    try {
      for await (const part of response as AsyncIterable<Buffer>) {
        bytes += part.length;
        if (bytes > MAX_JSON_BYTES) break;
        parts.push(part);
      }
    } catch (error) {
      throw this.lost(error);
    }
    const text = bytes > MAX_JSON_BYTES ? '' : Buffer.concat(parts).toString('utf8');
    return { status: response.statusCode!, headers: response.headers, json: parseJson(text) };
  }

  /** An error of a connection that was there. */
  lost(cause: unknown): Error {
    const { code } = cause as NodeJS.ErrnoException;
    // what has no code of the system is not the connection's doing
    if (cause instanceof ColiError || isAbort(cause) || typeof code !== 'string') return cause as Error;
    if (code.startsWith('HPE_')) {
      return new RequestError('NOT_COLIBRI', `what answers at ${this.base} does not speak HTTP`, {
        hint: CHECK_ADDRESS,
      });
    }
    return new RequestError('CONNECTION_LOST', `the connection to ${this.base} was lost${reason(cause)}`, { cause });
  }

  #send(method: string, path: string, body: string | undefined, signal: AbortSignal): Promise<IncomingMessage> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    const url = new URL(this.base + path);
    const secure = url.protocol === 'https:';
    const headers: http.OutgoingHttpHeaders = { 'user-agent': `coli/${packageVersion()}`, accept: '*/*' };
    if (this.#key !== null) headers['authorization'] = `Bearer ${this.#key}`;
    if (body !== undefined) {
      headers['content-type'] = 'application/json';
      headers['content-length'] = Buffer.byteLength(body);
    }
    // a connection of its own: one that was kept may have been closed by the server in this moment
    const request = (secure ? https : http).request(url, { method, headers, signal, agent: false });
    let connected = false;
    request.once('socket', socket => {
      socket.setKeepAlive(true, TCP_KEEPALIVE_MS);
      const timer = setTimeout(() => request.destroy(new Error('no answer')), this.#limits.connectMs);
      const made = () => {
        connected = true;
        clearTimeout(timer);
      };
      socket.once(secure ? 'secureConnect' : 'connect', made);
      request.once('close', () => clearTimeout(timer));
    });
    request.once('response', resolve);
    // stays there: errors after the response reach whoever reads it
    request.on('error', error => reject(connected ? this.lost(error) : this.#unreachable(error)));
    request.end(body);
    return promise;
  }

  #unreachable(cause: unknown): Error {
    if (isAbort(cause)) return cause as Error;
    const [other] = this.#others;
    const others = other === undefined ? '' : `; a server of yours runs at ${other}`;
    return new RequestError('SERVER_UNREACHABLE', `cannot reach a server at ${this.base}${reason(cause)}`, {
      hint: `start one with coli serve, which prints its address${others}`,
      details: { base: this.base },
      cause,
    });
  }
}

const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nobody listens there',
  ENOTFOUND: 'there is no such host',
  EAI_AGAIN: 'its name cannot be looked up now',
  ECONNRESET: 'it was closed by the other side',
  EPIPE: 'it was closed by the other side',
  ETIMEDOUT: 'no answer',
  EPROTO: 'it does not speak TLS; try http',
  ERR_SSL_WRONG_VERSION_NUMBER: 'it does not speak TLS; try http',
};

/** ": nobody listens there" */
function reason(cause: unknown): string {
  const { code = '', message = '' } = cause as NodeJS.ErrnoException;
  const text = REASONS[code] ?? message;
  return text === '' ? '' : `: ${text}`;
}

function isAbort(error: unknown): boolean {
  const { name, code } = error as NodeJS.ErrnoException;
  return name === 'AbortError' || name === 'TimeoutError' || code === 'ABORT_ERR';
}
