/** What the hub answers instead of what was asked for, in words and with a next step. */

import { HubError } from '../common/errors.ts';
import { quote } from '../formats/files.ts';

/** A failure that may pass by itself; `error` is what to throw when it does not. */
export class PassingFailure extends Error {
  readonly error: HubError;
  /** How long the hub asks to wait, or null. */
  readonly waitMs: number | null;

  constructor(error: HubError, waitMs: number | null = null) {
    super(error.message);
    this.error = error;
    this.waitMs = waitMs;
  }
}

/** Longest wait that an answer may ask for: the hub counts requests in windows of five minutes. */
const MAX_ASKED_WAIT_MS = 5 * 60_000;

export interface Asked {
  readonly endpoint: string;
  /** Repository, or repository and file. */
  readonly what: string;
  readonly hasToken: boolean;
}

/** The error for a status that is not a success. */
export function refusal(response: Response, asked: Asked): HubError | PassingFailure {
  const { status, headers } = response;
  const from = `${new URL(asked.endpoint).host} answered ${status} for ${asked.what}`;
  const details = { status, what: asked.what };
  const code = headers.get('x-error-code');
  if (status === 403 || (status === 401 && code === 'GatedRepo')) return noAccess(from, asked, details);
  if (status === 401) return unauthorized(from, asked, details);
  if (status === 404) return notFound(from, code, details);
  if (status === 429) {
    const error = new HubError('HUB_BUSY', `${from}: too many requests`, {
      hint: asked.hasToken
        ? 'wait some minutes, then give the same command again'
        : 'wait some minutes, or set HF_TOKEN: the hub allows more to those it knows',
      details,
    });
    return new PassingFailure(error, askedWait(headers.get('retry-after')));
  }
  if (status === 416) {
    const what = `${from}: the file is shorter than the hub lists`;
    return new PassingFailure(badAnswer(what, 'try again later: the repository may just have changed', details));
  }
  const error = new HubError('HUB_FAILED', from, {
    hint: status >= 500 ? 'the hub has trouble: give the same command again later' : 'check the name and HF_ENDPOINT',
    details,
  });
  return status >= 500 || status === 408 ? new PassingFailure(error, askedWait(headers.get('retry-after'))) : error;
}

function noAccess(from: string, { endpoint, what, hasToken }: Asked, details: Record<string, unknown>): HubError {
  const page = `${endpoint}/${what.split('/').slice(0, 2).join('/')}`;
  const agree = `accept its conditions at ${page} in a browser`;
  return new HubError('HUB_GATED', `${from}: ${hasToken ? 'the token that was sent has no access' : 'it is gated'}`, {
    hint: hasToken
      ? `${agree} with the account of this token, or use a token that may read it`
      : `${agree}, then set HF_TOKEN to a token of that account`,
    details,
  });
}

function unauthorized(from: string, { endpoint, hasToken }: Asked, details: Record<string, unknown>): HubError {
  const what = hasToken ? 'the token that was sent is not valid or may not see it' : 'it is private or does not exist';
  return new HubError('HUB_UNAUTHORIZED', `${from}: ${what}`, {
    hint: hasToken
      ? `check the name, then make a new token at ${endpoint}/settings/tokens and set HF_TOKEN to it`
      : 'check the name; for a private model set HF_TOKEN to a token that may read it',
    details,
  });
}

function notFound(from: string, code: string | null, details: Record<string, unknown>): HubError {
  if (code === 'RevisionNotFound') {
    const hint = 'check the branch, tag or commit behind the @';
    return new HubError('HUB_NO_REVISION', `${from}: there is no such revision`, { hint, details });
  }
  return new HubError('HUB_NOT_FOUND', `${from}: there is no such ${code === 'EntryNotFound' ? 'file' : 'model'}`, {
    hint: 'check the spelling; a private model needs HF_TOKEN',
    details,
  });
}

/** `Retry-After` in seconds, as the hub sends it; a date is not read. */
function askedWait(text: string | null): number | null {
  if (text === null || !/^\d{1,9}$/.test(text.trim())) return null;
  return Math.min(Number(text) * 1000, MAX_ASKED_WAIT_MS);
}

/** No answer came, or it broke off. */
export function unreachable(url: URL, error: unknown): PassingFailure {
  const cause = (error as { cause?: unknown }).cause ?? error;
  const { code, message } = cause as NodeJS.ErrnoException;
  // codes of the HTTP client itself say less than its messages
  const reason = code && !code.startsWith('UND_') ? code : message;
  const what = `the connection to ${url.host} failed: ${quote(reason).slice(1, -1)}`;
  return new PassingFailure(
    new HubError('HUB_UNREACHABLE', what, {
      hint: 'check the network, a proxy and HF_ENDPOINT; the same command continues where this one ended',
      details: { host: url.host },
      cause: error,
    }),
  );
}

/** The bytes of an answer are not what was asked for. */
export function badAnswer(what: string, hint: string, details: Record<string, unknown> = {}): HubError {
  return new HubError('HUB_BAD_ANSWER', what, { hint, details });
}

const WRONG_BYTES_HINT = 'try again later; a proxy on the way may be the reason';

/** The answer for the file `what` has not its bytes; another one may. */
export function wrongBytes(what: string, path: string, reason: string, hint = WRONG_BYTES_HINT): PassingFailure {
  return new PassingFailure(badAnswer(`${what}: ${reason}`, hint, { file: path }));
}

/** A web page in the place of a file that is none. */
export function isWebPage(response: Response, path: string): boolean {
  return /^text\/html\b/i.test(response.headers.get('content-type') ?? '') && !/\.html?$/i.test(path);
}

export const LOGIN_PAGE_HINT =
  'a proxy or the login page of a network may have answered: open the address in a browser';
