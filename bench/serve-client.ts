/** One request to a running server: sent, followed to its end or left at a given moment, and judged. */

import http, { type IncomingMessage } from 'node:http';
import { type AnswerReader, readerOf } from './serve-answer.ts';

export const APIS = {
  chat: '/v1/chat/completions',
  completions: '/v1/completions',
  messages: '/v1/messages',
  responses: '/v1/responses',
} as const;
export type Api = keyof typeof APIS;

/** When the client goes away: so many ms after it sent the request, or behind so many pieces of a streamed answer. */
export type Leave = { readonly afterMs: number } | { readonly afterPieces: number };

export interface Ask {
  /** What the tally counts it as. */
  readonly kind: string;
  readonly api: Api;
  /** JSON. */
  readonly body: string;
  readonly stream: boolean;
  readonly leave?: Leave;
  /** Statuses that are right; default 200. */
  readonly statuses?: readonly number[];
}

export interface Outcome {
  readonly kind: string;
  /** `left`: by the client, before there was a status. */
  readonly status: number | 'left' | 'failed';
  readonly left: boolean;
  /** What was wrong with it. */
  readonly problem: string | null;
  /** From sending to the first piece of text; null without one. */
  readonly firstMs: number | null;
  readonly text: string;
  readonly tokens: number;
  readonly ms: number;
}

export class ServeClient {
  readonly #port: number;
  readonly #agent = new http.Agent({ keepAlive: true });
  readonly #name: string;

  /** `name`: as the server's queue tells its clients apart. */
  constructor(port: number, name: string) {
    this.#port = port;
    this.#name = name;
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Body of a GET, whatever its status. */
  get(path: string): Promise<string> {
    return new Promise((resolve, reject) => {
      http
        .get({ port: this.#port, host: '127.0.0.1', path, agent: this.#agent }, response => {
          text(response).then(resolve, reject);
        })
        .on('error', reject);
    });
  }

  ask(ask: Ask): Promise<Outcome> {
    return new Promise(resolve => new Exchange(ask, resolve).run(this.#port, this.#agent, this.#name));
  }
}

async function text(response: IncomingMessage): Promise<string> {
  let all = '';
  for await (const chunk of response.setEncoding('utf8')) all += chunk;
  return all;
}

class Exchange {
  readonly #ask: Ask;
  readonly #resolve: (outcome: Outcome) => void;
  readonly #begun = performance.now();
  readonly #reader: AnswerReader;
  #status: number | null = null;
  #firstMs: number | null = null;
  #left = false;
  #timer: NodeJS.Timeout | undefined;

  constructor(ask: Ask, resolve: (outcome: Outcome) => void) {
    this.#ask = ask;
    this.#resolve = resolve;
    this.#reader = readerOf(ask.api, ask.stream);
  }

  run(port: number, agent: http.Agent, name: string): void {
    const { api, body, leave } = this.#ask;
    const headers = {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      'user-agent': name,
    };
    const request = http.request({ port, host: '127.0.0.1', method: 'POST', path: APIS[api], headers, agent });
    const go = () => {
      this.#left = true;
      request.destroy();
      this.#end(null);
    };
    request.on('error', error =>
      this.#end(this.#left ? null : `${error.message} (${(error as { code?: string }).code})`),
    );
    request.on('response', response => this.#follow(response, go));
    request.end(body);
    if (leave && 'afterMs' in leave) this.#timer = setTimeout(go, leave.afterMs);
  }

  #follow(response: IncomingMessage, go: () => void): void {
    const { leave, statuses = [200] } = this.#ask;
    this.#status = response.statusCode!;
    if (this.#status !== 200) this.#reader.isError = true;
    response.setEncoding('utf8');
    response.on('data', (chunk: string) => {
      const before = this.#reader.pieces;
      this.#reader.push(chunk);
      if (before === 0 && this.#reader.pieces > 0) this.#firstMs = performance.now() - this.#begun;
      if (leave && 'afterPieces' in leave && this.#reader.pieces >= leave.afterPieces) go();
    });
    response.on('error', error => this.#end(this.#left ? null : `the answer broke off: ${error.message}`));
    response.on('end', () => {
      const expected = statuses.includes(this.#status!);
      this.#end(expected ? this.#reader.end() : `status ${this.#status}: ${this.#reader.raw.slice(0, 300)}`);
    });
  }

  #end(problem: string | null): void {
    clearTimeout(this.#timer);
    this.#resolve({
      kind: this.#ask.kind,
      status: this.#status ?? (this.#left ? 'left' : 'failed'),
      left: this.#left,
      problem: problem && `${this.#ask.kind}: ${problem}`,
      firstMs: this.#firstMs,
      text: this.#reader.text,
      tokens: this.#reader.tokens,
      ms: performance.now() - this.#begun,
    });
  }
}
