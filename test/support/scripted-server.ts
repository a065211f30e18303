/** A server over real HTTP that says what a test wants, for clients to be tested with. */

import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import net, { type AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

export type Handler = (request: ScriptedRequest, response: ServerResponse) => void;

export interface ScriptedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: http.IncomingHttpHeaders;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into it as they like
  readonly body: any;
}

export const MODEL = {
  id: 'nano',
  owned_by: 'colibri',
  context_length: 64,
  family: 'olmoe',
  parameters: 32e6,
  chat: true,
};
export const PROPS = {
  build_info: 'colibri 1.2.3',
  kernels: 'reference',
  activations: 'int8',
  kv: 'f32',
  fingerprint: 'fp_one',
  default_generation_settings: { params: { temperature: 0.2, top_p: 0.9 } },
};

/** Listens on a free port until the test ends. `base`: its address. */
export async function startScriptedServer(handler: Handler) {
  const requests: ScriptedRequest[] = [];
  const server = http.createServer((request, response) => {
    void readAll(request).then(text => {
      const { method, url, headers } = request;
      const asked = { method: method!, path: url!, headers, body: text === '' ? null : JSON.parse(text) };
      requests.push(asked);
      handler(asked, response);
    });
  });
  const base = await listen(server);
  onTestFinished(() => server.closeAllConnections());
  return { base, requests };
}

/** One that accepts connections and does with them what a test wants. */
export function startRawServer(onConnection: (socket: net.Socket) => void): Promise<string> {
  return listen(
    net.createServer(socket => {
      socket.on('error', () => {});
      onTestFinished(() => {
        socket.destroy();
      });
      onConnection(socket);
    }),
  );
}

async function listen(server: net.Server): Promise<string> {
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function readAll(request: IncomingMessage): Promise<string> {
  let text = '';
  for await (const piece of request) text += piece;
  return text;
}

export function sendJson(
  response: ServerResponse,
  status: number,
  value: unknown,
  headers: http.OutgoingHttpHeaders = {},
): void {
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8', ...headers });
  response.end(JSON.stringify(value));
}

/** OpenAI's form of an error. */
export const errorBody = (code: string, message: string) => ({ error: { message, type: 'x', param: null, code } });

/** Answers what a colibri server says about itself; false when something else was asked. */
export function describeItself({ path }: ScriptedRequest, response: ServerResponse): boolean {
  if (path === '/v1/models') sendJson(response, 200, { object: 'list', data: [MODEL] });
  else if (path === '/props') sendJson(response, 200, PROPS);
  else return false;
  return true;
}

/** Chunks of an answer in the order of the API, as events. */
export function chunk(delta: object, more: object = {}): string {
  const choices = [{ index: 0, delta, finish_reason: null }];
  return `data: ${JSON.stringify({ system_fingerprint: 'fp_one', choices, usage: null, ...more })}\n\n`;
}
export const role = chunk({ role: 'assistant', content: '' });
export const text = (content: string) => chunk({ content });
export const progress = (done: number, total: number, eta_ms: number | null) =>
  chunk({}, { choices: [], progress: { done, total, eta_ms } });
export const finish = (reason: string) => chunk({}, { choices: [{ index: 0, delta: {}, finish_reason: reason }] });
export const usage = (prompt: number, completion: number, cached = 0) =>
  chunk(
    {},
    {
      choices: [],
      usage: {
        prompt_tokens: prompt,
        completion_tokens: completion,
        prompt_tokens_details: { cached_tokens: cached },
        completion_tokens_details: { reasoning_tokens: 0 },
      },
    },
  );
export const DONE = 'data: [DONE]\n\n';

export function beginStream(response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' });
}
