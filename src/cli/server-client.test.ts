import { describe, expect, test, vi } from 'vitest';
import { sendJson, startRawServer, startScriptedServer } from '../../test/support/scripted-server.ts';
import { ServerClient } from './server-client.ts';
import { refusal } from './server-refusal.ts';

const never = new AbortController().signal;
const client = (base: string, others: string[] = [], limits?: { connectMs: number; questionMs: number }) =>
  new ServerClient({ base, key: null, others }, limits);

describe('nobody answers', () => {
  test('nobody listens: where servers of this user run is told', async () => {
    const closed = 'http://127.0.0.1:1';
    await expect(client(closed).get('/', never)).rejects.toMatchObject({
      code: 'SERVER_UNREACHABLE',
      message: 'cannot reach a server at http://127.0.0.1:1: nobody listens there',
      hint: 'start one with coli serve, which prints its address',
    });
    await expect(client(closed, ['http://127.0.0.1:2']).get('/', never)).rejects.toMatchObject({
      hint: expect.stringMatching(/; a server of yours runs at http:\/\/127\.0\.0\.1:2$/),
    });
  });

  test('what speaks no HTTP', async () => {
    const base = await startRawServer(socket => socket.end('220 mail.example ESMTP\r\n'));
    await expect(client(base).get('/', never)).rejects.toMatchObject({
      code: 'NOT_COLIBRI',
      message: `what answers at ${base} does not speak HTTP`,
    });
  });

  test('a connection that is closed without an answer', async () => {
    const base = await startRawServer(socket => socket.once('data', () => socket.destroy()));
    await expect(client(base).get('/', never)).rejects.toMatchObject({
      code: 'CONNECTION_LOST',
      message: expect.stringContaining('closed by the other side'),
    });
  });

  test('a body that is cut', async () => {
    const head = 'HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{';
    const base = await startRawServer(socket => socket.once('data', () => socket.end(head)));
    await expect(client(base).get('/', never)).rejects.toMatchObject({ code: 'CONNECTION_LOST' });
  });

  test('a question has a limit, an answer of a model has none', async () => {
    const limits = { connectMs: 5000, questionMs: 20 };
    const silent = await startRawServer(() => {});
    let answer: (() => void) | null = null;
    const { base } = await startScriptedServer((_, response) => {
      answer = () => sendJson(response, 200, 1);
    });
    const late = client(base, [], limits).post('/', {}, never);
    await expect(client(silent, [], limits).get('/', never)).rejects.toMatchObject({ code: 'SERVER_SILENT' });
    await vi.waitUntil(() => answer !== null);
    answer!();
    expect((await late).statusCode).toBe(200);
  });

  test('asking may be given up', async () => {
    const base = await startRawServer(() => {});
    const abort = new AbortController();
    const asked = client(base).get('/', abort.signal);
    abort.abort();
    await expect(asked).rejects.toMatchObject({ name: 'AbortError' });
  });
});

test('a path before the API stays', async () => {
  const { base, requests } = await startScriptedServer((_, response) => sendJson(response, 200, {}));
  await client(`${base}/colibri`).get('/v1/models', never);
  expect(requests[0]).toMatchObject({ method: 'GET', path: '/colibri/v1/models' });
});

describe('when to ask again', () => {
  const busy = (header?: string) =>
    refusal({ status: 429, headers: { 'retry-after': header }, json: null }, 'x', false);

  test.each([
    ['5', 5000],
    [undefined, 1000],
    ['0', 1000],
    ['soon', 1000],
    ['-3', 1000],
    ['99999', 600_000],
    ['Thu, 01 Jan 1970 00:00:00 GMT', 1000],
    ['Fri, 01 Jan 2999 00:00:00 GMT', 600_000],
  ])('Retry-After: %s', (header, ms) => {
    expect(busy(header)).toMatchObject({ again: 'busy', retryMs: ms });
  });
});

test('a long message of a server is cut, one that is none is not taken for one', () => {
  const said = (error: unknown) => refusal({ status: 500, headers: {}, json: { error } }, 'http://x', false).error;
  expect(said({ message: 'x'.repeat(5000) }).message.length).toBeLessThan(2100);
  for (const error of [null, 'text', [], { message: 7 }]) expect(said(error).code).toBe('NOT_COLIBRI');
});
