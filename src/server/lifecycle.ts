/** A server from its first port to its last request. */

import dns from 'node:dns/promises';
import type { Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { RequestError } from '../common/errors.ts';
import { within } from '../common/waiting.ts';
import type { AdmissionQueue } from './admission.ts';
import { type AppParts, createApp, type ServerApp } from './app.ts';
import type { RuntimeEntry } from './runtime-file.ts';

/** For error events to be written and answers to be sent, once the grace has passed. */
const LAST_WORDS_MS = 2000;

export interface RunningServer {
  readonly port: number;
  /** One for each address it listens on. */
  readonly urls: readonly string[];
  /**
   * Takes no new requests; those that run have `graceMs` to finish, then they end with an error event. Resolves when all is
   * closed. More calls wait for the same end.
   */
  stop(graceMs: number): Promise<void>;
}

export interface ListenParts extends Omit<AppParts, 'stop'> {
  readonly queue: AdmissionQueue;
  /** Other servers of this user, to name the one that has the port. */
  readonly others?: () => readonly RuntimeEntry[];
}

/** Opens the port. Throws PORT_IN_USE or CANNOT_LISTEN. */
export async function startServer(parts: ListenParts): Promise<RunningServer> {
  const { host, port } = parts.settings;
  const stop = new AbortController();
  const server = await createApp({ ...parts, stop: stop.signal });
  try {
    const [first, ...more] = host === 'localhost' ? await localAddresses() : [host];
    await listen(server.servers[0], first, port).catch(error => {
      throw listenError(error, host, port, parts.others?.() ?? []);
    });
    const chosen = portOf(server.servers[0]);
    for (const address of more) await listenToo(server, address, chosen);
  } catch (error) {
    await closePorts(server);
    throw error;
  }
  let stopped: Promise<void> | null = null;
  return {
    port: portOf(server.servers[0]),
    urls: server.servers.filter(({ listening }) => listening).map(urlOf),
    stop: graceMs => (stopped ??= stopServer(server, parts.queue, stop, graceMs)),
  };
}

async function stopServer(
  { app, servers, idle }: ServerApp,
  queue: AdmissionQueue,
  stop: AbortController,
  graceMs: number,
): Promise<void> {
  const reason = new RequestError('SERVER_STOPPING', 'the server is stopping', { hint: 'try again when it is back' });
  queue.stop(reason);
  const closed = closePorts({ app, servers });
  await within(graceMs, idle());
  stop.abort(reason);
  await within(LAST_WORDS_MS, idle());
  for (const server of servers) server.closeAllConnections();
  await closed;
}

/** Both address families: some clients of "localhost" ask one, some the other. */
async function localAddresses(): Promise<string[]> {
  const found = await dns.lookup('localhost', { all: true }).catch(() => []);
  return [...new Set(['127.0.0.1', ...found.map(({ address }) => address)])];
}

async function listenToo(server: ServerApp, host: string, port: number): Promise<void> {
  await listen(server.addServer(), host, port).catch((error: NodeJS.ErrnoException) => {
    // this machine has no such address family
    if (error.code === 'EADDRNOTAVAIL' || error.code === 'EAFNOSUPPORT') return;
    throw listenError(error, host, port, []);
  });
}

/** Not by Fastify, which would log a line of its own for each address. */
function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

/** Takes no connections any more; resolves when the last one has ended. */
async function closePorts({ app, servers }: Pick<ServerApp, 'app' | 'servers'>): Promise<void> {
  const closed = servers.map(server => new Promise<void>(resolve => server.close(() => resolve())));
  await Promise.all([app.close(), ...closed]);
}

function listenError(
  error: NodeJS.ErrnoException,
  host: string,
  port: number,
  others: readonly RuntimeEntry[],
): RequestError {
  const at = `${host.includes(':') ? `[${host}]` : host}:${port}`;
  if (error.code === 'EADDRINUSE') {
    const owner = others.find(entry => entry.port === port);
    const who = owner ? `, by the server with ${owner.model} (process ${owner.pid})` : '';
    return new RequestError('PORT_IN_USE', `${at} is already in use${who}`, {
      hint: owner ? `stop it with coli stop --port ${port}, or choose another --port` : 'choose another --port',
      details: { host, port, pid: owner?.pid ?? null },
      cause: error,
    });
  }
  const reasons: Record<string, string> = {
    EACCES: 'this user may not open it; ports below 1024 need more rights',
    EADDRNOTAVAIL: 'this machine has no such address',
    ENOTFOUND: 'there is no such host',
  };
  return new RequestError('CANNOT_LISTEN', `cannot listen on ${at}: ${reasons[error.code ?? ''] ?? error.message}`, {
    hint: 'choose another --host or --port',
    details: { host, port },
    cause: error,
  });
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

function urlOf(server: Server): string {
  const { address, family, port } = server.address() as AddressInfo;
  return `http://${family === 'IPv6' ? `[${address}]` : address}:${port}`;
}
