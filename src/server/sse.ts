/**
 * Server-sent events, once for all dialects: a stream begins when its first frame is there, says something at least every few
 * seconds, waits for a slow reader without holding up anybody else, and ends with one terminal event whatever happens.
 */

import type { ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { RequestError } from '../common/errors.ts';
import { type HttpError, toHttpError } from './errors.ts';
import { noteError } from './outcome.ts';

/** One event. `data` is one line: JSON, or a word such as [DONE]. */
export interface Frame {
  readonly event?: string;
  readonly data: string;
}

export interface StreamOptions {
  /** What tells the client of an error after the start; the stream ends behind it. Default: OpenAI's `data: {"error": ...}`. */
  readonly errorFrames: (error: HttpError) => readonly Frame[];
  /** Sent when the stream has been silent, instead of the comment, and also when comments are turned off. */
  readonly keepalive?: Frame;
}

export interface StreamSettings {
  /** Silence after which a keepalive is sent. */
  readonly keepaliveMs: number;
  /** Some clients cannot read comments. */
  readonly comments: boolean;
  /** A reader that takes nothing for so long loses its stream. */
  readonly stallMs: number;
  /** Aborted, with the error to tell, when the server ends running requests. */
  readonly stop: AbortSignal;
}

/** Bytes that wait for a slow reader before its stream is no longer asked for more (Node's own buffer takes the one frame above). */
const BUFFER_BYTES = 256 * 1024;

/**
 * Runs `work` with a signal that aborts when the client goes away or the server ends running requests; the signal's reason is
 * what to tell the client. For answers in one piece; `sendStream` does it for streams.
 */
export async function whileConnected<T>(
  reply: FastifyReply,
  stop: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const abort = new AbortController();
  const leave = onGone(reply.raw, stop, reason => abort.abort(reason));
  try {
    return await orAborted(work(abort.signal), abort.signal);
  } finally {
    leave();
  }
}

/**
 * Streams what `makeFrames` yields. The first frame is awaited before anything is sent: what is thrown until then is thrown
 * here and can still be a status. Later errors become `errorFrames`. Resolves when the stream has ended, whoever ended it.
 */
export async function sendStream(
  request: FastifyRequest,
  reply: FastifyReply,
  settings: StreamSettings,
  makeFrames: (signal: AbortSignal) => AsyncIterable<Frame>,
  options: StreamOptions,
): Promise<void> {
  const abort = new AbortController();
  const leave = onGone(reply.raw, settings.stop, reason => abort.abort(reason));
  const frames = makeFrames(abort.signal)[Symbol.asyncIterator]();
  try {
    const first = await orAborted(frames.next(), abort.signal);
    reply.hijack();
    const writer = new SseWriter(reply.raw, settings, options.keepalive, reason => abort.abort(reason));
    writer.begin(reply.getHeaders());
    try {
      await pump(first, frames, writer, abort.signal);
    } catch (error) {
      const told = abort.signal.aborted ? abort.signal.reason : error;
      const wire = toHttpError(told);
      noteError(request, wire);
      if (wire.ours) request.log.error({ err: told }, 'a stream failed');
      for (const frame of options.errorFrames(wire)) writer.write(frame);
    } finally {
      writer.end();
    }
  } finally {
    leave();
    // a generator that waits inside is told by the signal; nobody waits for its answer
    abort.abort(new RequestError('CANCELLED', 'the stream has ended'));
    Promise.resolve(frames.return?.()).catch(() => {});
  }
}

async function pump(
  first: IteratorResult<Frame>,
  frames: AsyncIterator<Frame>,
  writer: SseWriter,
  signal: AbortSignal,
): Promise<void> {
  for (let next = first; !next.done; next = await orAborted(frames.next(), signal)) {
    writer.write(next.value);
    if (writer.full) await orAborted(writer.drained(), signal);
  }
}

/** Rejects with the signal's reason as soon as it aborts, whether or not `promise` ever settles. */
function orAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  promise.catch(() => {});
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) return abort();
    signal.addEventListener('abort', abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}

/** Calls `gone` when the connection closes before the answer is complete, or the server ends its requests. */
function onGone(raw: ServerResponse, stop: AbortSignal, gone: (reason: unknown) => void): () => void {
  const close = () => gone(new RequestError('CANCELLED', 'the client went away'));
  const stopped = () => gone(stop.reason);
  if (raw.destroyed || raw.socket?.destroyed) close();
  if (stop.aborted) stopped();
  raw.once('close', close);
  stop.addEventListener('abort', stopped, { once: true });
  return () => {
    raw.off('close', close);
    stop.removeEventListener('abort', stopped);
  };
}

const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  // proxies such as nginx would collect the stream
  'x-accel-buffering': 'no',
};

/** Frames onto one response, with keepalives and a limit on how long a reader may stand still. */
class SseWriter {
  readonly #raw: ServerResponse;
  readonly #settings: StreamSettings;
  readonly #keepalive: string | null;
  readonly #stalled: (reason: unknown) => void;
  #silence: NodeJS.Timeout | undefined;

  constructor(
    raw: ServerResponse,
    settings: StreamSettings,
    keepalive: Frame | undefined,
    stalled: (reason: unknown) => void,
  ) {
    this.#raw = raw;
    this.#settings = settings;
    this.#keepalive = keepalive ? frameText(keepalive) : settings.comments ? ': keepalive\n\n' : null;
    this.#stalled = stalled;
  }

  begin(headers: Readonly<Record<string, unknown>>): void {
    // a write to a socket that has just closed is reported here; `close` tells the rest
    this.#raw.on('error', () => {});
    this.#raw.writeHead(200, { ...(headers as Record<string, string>), ...HEADERS });
    this.#raw.flushHeaders();
    this.#restart();
  }

  write(frame: Frame): void {
    this.#send(frameText(frame));
  }

  /** More is waiting for the reader than a stream may hold. */
  get full(): boolean {
    return this.#raw.writableLength > BUFFER_BYTES;
  }

  /** Waits until the reader has taken what was waiting; one that takes too long loses its stream. */
  async drained(): Promise<void> {
    clearTimeout(this.#silence);
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>(resolve => {
      this.#raw.once('drain', resolve);
      timer = setTimeout(() => {
        this.#stalled(new RequestError('READER_STALLED', 'the client does not read its stream'));
        // what it has not taken by now would wait for ever
        this.#raw.destroy();
      }, this.#settings.stallMs);
    }).finally(() => clearTimeout(timer));
    this.#restart();
  }

  end(): void {
    clearTimeout(this.#silence);
    if (!this.#raw.destroyed) this.#raw.end();
  }

  #send(text: string): void {
    if (this.#raw.destroyed) return;
    this.#raw.write(text);
    this.#restart();
  }

  #restart(): void {
    clearTimeout(this.#silence);
    if (this.#keepalive === null) return;
    this.#silence = setTimeout(() => this.#send(this.#keepalive!), this.#settings.keepaliveMs);
  }
}

function frameText({ event, data }: Frame): string {
  return event === undefined ? `data: ${data}\n\n` : `event: ${event}\ndata: ${data}\n\n`;
}
