/** Requests to the hub: redirects by hand, because the token must not follow them to another host, and limits on what comes back. */

import { MIB } from '../common/units.ts';
import { readAhead } from './read-ahead.ts';
import { badAnswer, LOGIN_PAGE_HINT, refusal, unreachable } from './refusals.ts';
import { DEFAULT_TIMING, retrying, type Timing, throwIfStopped } from './retry.ts';

/** The hub needs two: to a renamed repository, and to the store of large files. */
const MAX_REDIRECTS = 5;
const REDIRECTS: readonly number[] = [301, 302, 303, 307, 308];
/** One page of a listing: 1000 files at some hundred bytes are well below 1 MB. */
const MAX_JSON_BYTES = 16 * MIB;

export interface ClientSettings {
  readonly endpoint: string;
  readonly token: string | null;
}

export class HubClient {
  readonly endpoint: string;
  readonly timing: Timing;
  readonly #token: string | null;

  constructor({ endpoint, token }: ClientSettings, timing: Timing = DEFAULT_TIMING) {
    this.endpoint = endpoint;
    this.timing = timing;
    this.#token = token;
  }

  /**
   * One GET; `use` gets a successful answer and its bytes. Throws PassingFailure for what may pass, HubError for what will
   * not, HUB_STOPPED when `signal` aborts. `what` is named in messages.
   */
  async get<T>(
    url: string,
    what: string,
    headers: Record<string, string>,
    signal: AbortSignal | undefined,
    use: (response: Response, chunks: AsyncIterable<Uint8Array>) => Promise<T>,
  ): Promise<T> {
    throwIfStopped(signal);
    const idle = new AbortController();
    const timer = setTimeout(() => idle.abort(new Error('nothing came any more')), this.timing.idleMs);
    const all = signal ? AbortSignal.any([signal, idle.signal]) : idle.signal;
    let response: Response | undefined;
    try {
      response = await this.#follow(new URL(url), headers, all);
      if (!response.ok) throw refusal(response, { endpoint: this.endpoint, what, hasToken: this.#token !== null });
      return await use(response, chunksOf(response, timer));
    } catch (error) {
      throwIfStopped(signal);
      if (idle.signal.aborted) throw unreachable(new URL(response?.url || url), idle.signal.reason);
      throw error;
    } finally {
      clearTimeout(timer);
      await response?.body?.cancel().catch(() => {});
    }
  }

  /** The text of a JSON answer as a new response: what a `fetch` for the listing is to return. Tries again by itself. */
  json(url: string, what: string, signal?: AbortSignal): Promise<Response> {
    return retrying(this.timing, signal, () =>
      this.get(url, what, { accept: 'application/json' }, signal, async (response, chunks) => {
        const text = await boundedText(chunks, what);
        try {
          JSON.parse(text);
        } catch {
          const type = response.headers.get('content-type') ?? 'unknown type';
          throw badAnswer(`${new URL(url).host} sent ${type} for ${what}, which is no JSON`, LOGIN_PAGE_HINT);
        }
        return new Response(text, { status: 200, headers: response.headers });
      }),
    );
  }

  async #follow(start: URL, headers: Record<string, string>, signal: AbortSignal): Promise<Response> {
    const home = new URL(this.endpoint);
    let url = start;
    for (let hop = 0; hop <= MAX_REDIRECTS; hop++) {
      const own = this.#token !== null && url.origin === home.origin ? { authorization: `Bearer ${this.#token}` } : {};
      const init = {
        headers: { 'accept-encoding': 'identity', ...headers, ...own },
        redirect: 'manual',
        signal,
      } as const;
      const response = await fetch(url, init).catch(error => {
        throw unreachable(url, error);
      });
      if (!REDIRECTS.includes(response.status)) return response;
      await response.body?.cancel();
      url = redirectTarget(url, response.headers.get('location'));
    }
    throw badAnswer(`${start.host} redirects more than ${MAX_REDIRECTS} times`, 'check HF_ENDPOINT');
  }
}

/** From https only to https: what was asked for in secret is not fetched in the open. */
function redirectTarget(from: URL, location: string | null): URL {
  const target = location !== null && URL.canParse(location, from.href) ? new URL(location, from) : null;
  const allowed = from.protocol === 'https:' ? ['https:'] : ['https:', 'http:'];
  if (target && allowed.includes(target.protocol) && target.username === '' && target.password === '') return target;
  throw badAnswer(`${from.host} redirects to an address that is not followed`, 'check HF_ENDPOINT');
}

/** Every sign of life starts the time anew in which the next one must come. */
async function* chunksOf(response: Response, timer: NodeJS.Timeout): AsyncGenerator<Uint8Array> {
  if (!response.body) return;
  try {
    yield* readAhead(response.body, () => timer.refresh());
  } catch (error) {
    throw unreachable(new URL(response.url), error);
  }
}

async function boundedText(chunks: AsyncIterable<Uint8Array>, what: string): Promise<string> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    if (bytes > MAX_JSON_BYTES) {
      throw badAnswer(`the answer for ${what} is longer than ${MAX_JSON_BYTES} bytes`, LOGIN_PAGE_HINT);
    }
    parts.push(chunk);
  }
  return Buffer.concat(parts).toString('utf8');
}
