/** One file: the bytes that are missing, from wherever an earlier try ended, until its digest is the one that the hub lists. */

import { HubError } from '../common/errors.ts';
import { quote } from '../formats/files.ts';
import type { HubClient } from './client.ts';
import { digestOf, type HubFile } from './hub-file.ts';
import { PartialFile } from './partial-file.ts';
import { isWebPage, LOGIN_PAGE_HINT, PassingFailure, wrongBytes } from './refusals.ts';
import { DOWNLOAD_TRIES, pause, throwIfStopped, waitBefore } from './retry.ts';

/** A try that brings less than this further than any before counts as failed: a hub that trickles must not hold us for ever. */
const MIN_PROGRESS_BYTES = 16 * 1024;
/** Connections come back, but an answer that is wrong so often in a row stays wrong. */
const WRONG_ANSWER_TRIES = 4;
/** A file whose digest is wrong is fetched anew so often in all. */
const MAX_FETCHES = 3;

export interface DownloadOptions {
  readonly signal?: AbortSignal;
  /** Bytes of this file that are on the disk; fewer than before when it begins anew. */
  readonly onProgress?: (bytes: number) => void;
}

export interface DownloadResult {
  /** Bytes that came over the network. */
  readonly fetchedBytes: number;
  /** Bytes that an earlier run had left. */
  readonly resumedBytes: number;
  /** Connections that broke and were made again. */
  readonly reconnects: number;
  /** Times that all bytes came and had the wrong digest. */
  readonly mismatches: number;
}

/**
 * Downloads `file` from `url` to `destination`, which appears only when size and digest are right. Throws FILE_DIGEST when the
 * bytes stay wrong, HUB_STOPPED when the signal aborts, and what the hub or the disk refuses.
 */
export async function downloadFile(
  client: HubClient,
  url: string,
  what: string,
  file: HubFile,
  destination: string,
  options: DownloadOptions = {},
): Promise<DownloadResult> {
  const partial = await PartialFile.open(destination, file, options.signal);
  const fetching = new Fetching(client, url, what, file, partial, options);
  const resumedBytes = partial.position;
  try {
    let fetches = 1;
    for (; ; fetches++) {
      await fetching.fill();
      if (partial.digest() === digestOf(file)) break;
      await checkFetchesLeft(fetches, what, file, partial);
      options.onProgress?.(0);
    }
    await partial.finish(destination);
    const { fetchedBytes, reconnects } = fetching;
    return { fetchedBytes, resumedBytes, reconnects, mismatches: fetches - 1 };
  } finally {
    await partial.close();
  }
}

/** Throws away bytes that are wrong; the last time, nothing of them may stay to be continued. */
async function checkFetchesLeft(fetches: number, what: string, file: HubFile, partial: PartialFile): Promise<void> {
  const got = partial.digest();
  await partial.restart();
  if (fetches < MAX_FETCHES) return;
  await partial.remove();
  const expected = digestOf(file);
  throw new HubError(
    'FILE_DIGEST',
    `${what} was fetched ${MAX_FETCHES} times and was never the file that the hub lists: its digest must be ${expected}, is ${got}`,
    {
      hint: 'nothing of it was kept; a proxy may change it on the way: try another network, or later',
      details: { file: file.path, expected, got },
    },
  );
}

class Fetching {
  readonly #client: HubClient;
  readonly #url: string;
  readonly #what: string;
  readonly #file: HubFile;
  readonly #partial: PartialFile;
  readonly #options: DownloadOptions;
  /** Of the bytes that are there, when this process fetched them and the tag may be compared. */
  #etag: string | null = null;
  fetchedBytes = 0;
  reconnects = 0;

  constructor(
    client: HubClient,
    url: string,
    what: string,
    file: HubFile,
    partial: PartialFile,
    options: DownloadOptions,
  ) {
    this.#client = client;
    this.#url = url;
    this.#what = what;
    this.#file = file;
    this.#partial = partial;
    this.#options = options;
  }

  /** Tries until all bytes are there. Tries count only while nothing new comes. */
  async fill(): Promise<void> {
    const { signal } = this.#options;
    let furthest = this.#partial.position;
    let tries = 0;
    while (this.#partial.position < this.#file.bytes) {
      let failure: PassingFailure;
      try {
        await this.#fetchRest();
        continue;
      } catch (error) {
        throwIfStopped(signal);
        if (!(error instanceof PassingFailure)) throw error;
        failure = error;
      }
      this.reconnects++;
      if (this.#partial.position >= furthest + MIN_PROGRESS_BYTES) {
        furthest = this.#partial.position;
        tries = 0;
        continue;
      }
      const limit = failure.error.code === 'HUB_BAD_ANSWER' ? WRONG_ANSWER_TRIES : DOWNLOAD_TRIES;
      if (++tries >= limit) throw failure.error;
      await pause(waitBefore(this.#client.timing, tries, failure.waitMs), signal);
    }
  }

  /** One request for everything from the current position on; returns when the last byte is there. */
  #fetchRest(): Promise<void> {
    const { position } = this.#partial;
    const headers: Record<string, string> = {};
    if (position > 0) headers['range'] = `bytes=${position}-`;
    if (position > 0 && this.#etag !== null) headers['if-range'] = this.#etag;
    return this.#client.get(this.#url, this.#what, headers, this.#options.signal, async (response, chunks) => {
      await this.#accept(response);
      const file = this.#file;
      for await (const chunk of chunks) {
        if (this.#partial.position + chunk.length > file.bytes) {
          await this.#partial.restart();
          throw this.#wrong(`it has more than the ${file.bytes} bytes that the hub lists`);
        }
        await this.#partial.write(chunk);
        this.fetchedBytes += chunk.length;
        this.#options.onProgress?.(this.#partial.position);
      }
      if (this.#partial.position < file.bytes) {
        throw this.#wrong(`it ended at byte ${this.#partial.position} of ${file.bytes}`);
      }
    });
  }

  /** Looks at the head of an answer before a byte of it is kept. */
  async #accept(response: Response): Promise<void> {
    const { status, headers } = response;
    if (isWebPage(response, this.#file.path)) throw this.#wrong('a web page came in its place', LOGIN_PAGE_HINT);
    const etag = strongTag(headers.get('etag'));
    const isRange = status === 206;
    if (isRange) this.#checkRange(headers.get('content-range'));
    const missing = this.#file.bytes - (isRange ? this.#partial.position : 0);
    const length = headers.has('content-encoding') ? null : headers.get('content-length');
    if (length !== null && Number(length) !== missing) {
      throw this.#wrong(`${Number(length)} bytes were to come, and ${missing} are missing`);
    }
    if (isRange && this.#etag !== null && etag !== this.#etag) {
      await this.#restart();
      throw this.#wrong('it changed while it was fetched');
    }
    // everything from the beginning: the file is another one by now, or ranges are not known here
    if (!isRange && this.#partial.position > 0) await this.#restart();
    this.#etag = etag;
  }

  #checkRange(range: string | null): void {
    const { position } = this.#partial;
    const match = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(range ?? '');
    const sizeFits = match !== null && (match[3] === '*' || Number(match[3]) === this.#file.bytes);
    if (match && Number(match[1]) === position && sizeFits) return;
    throw this.#wrong(`bytes ${position}- of ${this.#file.bytes} were asked for, ${quote(range ?? 'none')} came`);
  }

  async #restart(): Promise<void> {
    this.#etag = null;
    await this.#partial.restart();
    this.#options.onProgress?.(0);
  }

  #wrong(reason: string, hint?: string): PassingFailure {
    return wrongBytes(this.#what, this.#file.path, reason, hint);
  }
}

/** Weak tags may be equal for different bytes, so they are no reason to continue. */
function strongTag(etag: string | null): string | null {
  return etag !== null && /^"[\x21\x23-\x7e]*"$/.test(etag) ? etag : null;
}
