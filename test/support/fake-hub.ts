/** A hub on this machine: the addresses that a download asks, with every way to answer wrongly that a test may want. */

import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';

/** Files larger than this are listed with a SHA-256, as the hub does for its large-file store. */
const LARGE_BYTES = 2000;
const PAGE_FILES = 4;

export interface FakeRepo {
  id: string;
  files: Record<string, Buffer>;
  /** Branch or tag -> commit. */
  refs: Record<string, string>;
  /** Needs this token. */
  token?: string;
  gated?: boolean;
}

/** What to do with one request for bytes; every field is one fault. */
export interface Fault {
  /** Ends the connection after so many bytes of the body. */
  dropAfter?: number;
  /** A complete answer (its length says so) with fewer bytes. */
  truncateTo?: number;
  /** Flips a bit of this byte of the file. */
  flip?: number;
  html?: boolean;
  empty?: boolean;
  ignoreRange?: boolean;
  etag?: string;
  status?: number;
  headers?: Record<string, string>;
  /** Address to go to instead. */
  redirect?: string;
  /** Sends so many bytes, then nothing more, and keeps the connection. */
  stallAfter?: number;
  /** Called when the bytes before the stall have been sent. */
  stalled?: () => void;
  /** Waits after every piece of this size. */
  throttle?: { pieceBytes: number; pauseMs: number };
  /** Bytes behind the end of the file. */
  extra?: number;
}

export interface SeenRequest {
  path: string;
  range: string | undefined;
  ifRange: string | undefined;
  authorization: string | undefined;
  host: string | undefined;
}

export class FakeHub {
  readonly repos = new Map<string, FakeRepo>();
  readonly requests: SeenRequest[] = [];
  /** False: a server that knows ranges but not the condition on them. */
  honoursIfRange = true;
  /** Asked for every request of bytes; `count` is how many there were for this file before. */
  onFile: (path: string, count: number, request: IncomingMessage) => Fault | undefined = () => undefined;
  /** Asked for every other request; an answer of its own replaces the right one. */
  onApi: (
    url: string,
    count: number,
  ) => { status?: number; headers?: Record<string, string>; body?: string } | undefined = () => undefined;
  /** Changes entries of the listing. */
  onEntry: (entry: Record<string, unknown>) => Record<string, unknown> = entry => entry;
  readonly #server = createServer((request, response) => {
    this.#answer(request, response).catch(() => response.destroy());
  });
  port = 0;
  readonly #counts = new Map<string, number>();

  static async start(): Promise<FakeHub> {
    const hub = new FakeHub();
    await new Promise<void>(resolve => hub.#server.listen(0, '127.0.0.1', resolve));
    hub.port = (hub.#server.address() as AddressInfo).port;
    return hub;
  }

  get endpoint(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise(resolve => this.#server.close(resolve));
  }

  /** A repository whose branch main is a commit made of its content. */
  add(id: string, files: Record<string, Buffer | string>, more: Partial<FakeRepo> = {}): FakeRepo {
    const buffers = Object.fromEntries(Object.entries(files).map(([path, content]) => [path, Buffer.from(content)]));
    const repo: FakeRepo = { id, files: buffers, refs: { main: commitOf(buffers) }, ...more };
    this.repos.set(id, repo);
    return repo;
  }

  requestsFor(path: string): SeenRequest[] {
    return this.requests.filter(request => request.path === path);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url!, this.endpoint);
    const path = decodeURIComponent(url.pathname);
    const [, filePath] = /^\/[^/]+\/[^/]+\/resolve\/[^/]+\/(.*)$/.exec(path) ?? [];
    const { range, authorization, host } = request.headers;
    const ifRange = request.headers['if-range'] as string | undefined;
    this.requests.push({ path: filePath ?? path, range, ifRange, authorization, host });
    const key = filePath ?? `${path}?`;
    const count = this.#counts.get(key) ?? 0;
    this.#counts.set(key, count + 1);
    const apiAnswer = filePath === undefined ? this.onApi(request.url!, count) : undefined;
    if (apiAnswer) return send(response, apiAnswer.status ?? 200, apiAnswer.body ?? '', apiAnswer.headers);

    const [, id, rest] = /^\/(?:api\/models\/)?([^/]+\/[^/]+)\/(.*)$/.exec(path) ?? [];
    const repo = this.repos.get(id ?? '');
    const refused = refusalOf(repo, request.headers.authorization);
    if (refused || !repo) return send(response, refused![0], '{"error":"no"}', { 'x-error-code': refused![1] });
    if (filePath !== undefined)
      return this.#sendFile(repo, filePath, this.onFile(filePath, count, request) ?? {}, request, response);
    const [, kind, revision] = /^(revision|tree)\/(.*)$/.exec(rest) ?? [];
    const commit = repo.refs[revision] ?? (Object.values(repo.refs).includes(revision) ? revision : undefined);
    if (commit === undefined) return send(response, 404, '{}', { 'x-error-code': 'RevisionNotFound' });
    if (kind === 'revision') return send(response, 200, JSON.stringify({ _id: 'x', id: repo.id, sha: commit }));
    return this.#sendTree(repo, url, response);
  }

  #sendTree(repo: FakeRepo, url: URL, response: ServerResponse): void {
    const all = Object.entries(repo.files).map(([path, content]) => this.onEntry(entryOf(path, content)));
    const start = Number(url.searchParams.get('cursor') ?? 0);
    const headers: Record<string, string> = {};
    if (start + PAGE_FILES < all.length) {
      url.searchParams.set('cursor', String(start + PAGE_FILES));
      headers['link'] = `<${url.href}>; rel="next"`;
    }
    send(response, 200, JSON.stringify(all.slice(start, start + PAGE_FILES)), headers);
  }

  async #sendFile(repo: FakeRepo, path: string, fault: Fault, request: IncomingMessage, response: ServerResponse) {
    const content = repo.files[path];
    if (fault.redirect) return send(response, 302, '', { location: fault.redirect });
    if (fault.status) return send(response, fault.status, 'no', fault.headers);
    if (content === undefined) return send(response, 404, '', { 'x-error-code': 'EntryNotFound' });
    if (fault.html)
      return send(response, 200, '<html>please log in</html>', { 'content-type': 'text/html; charset=utf-8' });
    if (fault.empty) return send(response, 200, '');
    await sendBytes(content, fault, request, response, this.honoursIfRange);
  }
}

async function sendBytes(
  file: Buffer,
  fault: Fault,
  request: IncomingMessage,
  response: ServerResponse,
  honoursIfRange: boolean,
): Promise<void> {
  const etag = fault.etag ?? `"${sha256(file).slice(0, 32)}"`;
  const ifRange = request.headers['if-range'];
  const [, from, to] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
  const isCurrent = ifRange === undefined || ifRange === etag || !honoursIfRange;
  const isRange = from !== undefined && !fault.ignoreRange && isCurrent;
  const start = isRange ? Number(from) : 0;
  if (isRange && start >= file.length) return send(response, 416, '');
  let content = Buffer.from(file);
  if (fault.flip !== undefined) content[fault.flip] ^= 1;
  if (fault.truncateTo !== undefined) content = content.subarray(0, Math.max(start, fault.truncateTo));
  if (fault.extra) content = Buffer.concat([content, Buffer.alloc(fault.extra, 'x')]);
  // an answer to a closed range ends there
  const stop = isRange && to ? Math.min(Number(to) + 1, file.length) : file.length;
  const body = isRange && to ? content.subarray(start, stop) : content.subarray(start);
  const headers: Record<string, string> = { etag, 'content-type': 'application/octet-stream' };
  if (isRange) headers['content-range'] = `bytes ${start}-${stop - 1}/${file.length}`;
  Object.assign(headers, fault.headers);
  // without a length the end of the answer is all that says how long it is
  if (fault.truncateTo === undefined && !fault.extra) headers['content-length'] = String(body.length);
  response.writeHead(isRange ? 206 : 200, headers);
  const end = Math.min(fault.dropAfter ?? fault.stallAfter ?? body.length, body.length);
  const piece = fault.throttle?.pieceBytes ?? Math.max(end, 1);
  for (let at = 0; at < end && !response.destroyed; at += piece) {
    await new Promise(resolve => response.write(body.subarray(at, Math.min(at + piece, end)), resolve));
    if (fault.throttle) await delay(fault.throttle.pauseMs);
  }
  if (fault.stallAfter !== undefined && end < body.length) return fault.stalled?.();
  if (fault.dropAfter !== undefined && end < body.length) response.destroy();
  else response.end();
}

function refusalOf(repo: FakeRepo | undefined, authorization: string | undefined): [number, string] | null {
  if (repo === undefined) return authorization ? [404, 'RepoNotFound'] : [401, 'RepoNotFound'];
  if (repo.token === undefined || authorization === `Bearer ${repo.token}`) return null;
  if (repo.gated) return [authorization ? 403 : 401, 'GatedRepo'];
  return [401, 'RepoNotFound'];
}

function entryOf(path: string, content: Buffer): Record<string, unknown> {
  const size = content.length;
  const common = { type: 'file', path, size, oid: gitSha1(content) };
  return size > LARGE_BYTES ? { ...common, lfs: { oid: sha256(content), size, pointerSize: 130 } } : common;
}

function send(response: ServerResponse, status: number, body: string, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(body);
}

function commitOf(files: Record<string, Buffer>): string {
  const hash = createHash('sha1');
  for (const [path, content] of Object.entries(files)) hash.update(path).update(content);
  return hash.digest('hex');
}

export function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex');
}

export function gitSha1(content: Buffer): string {
  return createHash('sha1').update(`blob ${content.length}\0`).update(content).digest('hex');
}

/** Bytes that are different everywhere and the same every time. */
export function noise(bytes: number, seed: number): Buffer {
  const buffer = Buffer.alloc(bytes);
  let state = seed >>> 0 || 1;
  for (let i = 0; i < bytes; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    buffer[i] = state >>> 24;
  }
  return buffer;
}
