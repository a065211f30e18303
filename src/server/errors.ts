/** From an error of ours to what a client of HTTP sees: status, OpenAI's words for it, and a message that ends with the next step. */

import { hasZodFastifySchemaValidationErrors, type ZodFastifySchemaValidationError } from 'fastify-type-provider-zod';
import { ColiError, RequestError } from '../common/errors.ts';
import { formatJsonPath } from '../formats/json.ts';

/** A failed request, in the words that every dialect can put into its own shape. */
export interface HttpError {
  readonly status: number;
  /** OpenAI's type: invalid_request_error, rate_limit_error, server_error, ... */
  readonly type: string;
  readonly code: string | null;
  /** The field at fault, as a path such as `messages[0].content`. */
  readonly param: string | null;
  /** Cause, then the next step. */
  readonly message: string;
  readonly retryAfterSeconds: number | null;
  /** The server's own fault: worth an error line in the log. */
  readonly ours: boolean;
}

interface Row {
  readonly status: number;
  readonly type: string;
  /** Default: the error's own code in lower case. */
  readonly code?: string;
  /** It is about the prompt, whatever field that is. */
  readonly ofPrompt?: true;
  readonly retryAfterSeconds?: number;
  /** Where the error's own speaks of the command line. */
  readonly hint?: string;
}

const INVALID = 'invalid_request_error';
const RAW_ROUTE = 'send the prompt as text to /v1/completions';

/** Codes whose status is not that of their class. */
const BY_CODE: Readonly<Record<string, Row>> = {
  CONTEXT_EXCEEDED: { status: 400, type: INVALID, code: 'context_length_exceeded', ofPrompt: true },
  EMPTY_PROMPT: { status: 400, type: INVALID, ofPrompt: true },
  BAD_TOKEN_ID: { status: 400, type: INVALID, ofPrompt: true },
  BAD_PARAMETER: { status: 400, type: INVALID, code: 'invalid_value' },
  TEXT_TIME_LIMIT: { status: 400, type: INVALID, ofPrompt: true },
  TEXT_NOT_ENCODABLE: { status: 400, type: INVALID, ofPrompt: true },
  TOKENIZER_GROWTH: { status: 400, type: INVALID, ofPrompt: true },
  NO_CHAT_TEMPLATE: { status: 400, type: INVALID, hint: RAW_ROUTE },
  // trying again would not help, which a status above 499 would say
  CHAT_TEMPLATE_INVALID: { status: 400, type: INVALID, hint: RAW_ROUTE },
  CHAT_TEMPLATE_MISSING: { status: 400, type: INVALID, hint: RAW_ROUTE },
  CHAT_TEMPLATE_REFUSED: { status: 400, type: INVALID, ofPrompt: true },
  CHAT_TEMPLATE_FAILED: { status: 400, type: INVALID, ofPrompt: true },
  CHAT_TEMPLATE_LIMIT: { status: 400, type: INVALID, ofPrompt: true },
  INVALID_API_KEY: { status: 401, type: 'authentication_error' },
  HOST_FORBIDDEN: { status: 403, type: 'forbidden' },
  ORIGIN_FORBIDDEN: { status: 403, type: 'forbidden' },
  MODEL_NOT_FOUND: { status: 404, type: INVALID },
  UNKNOWN_ROUTE: { status: 404, type: INVALID, code: 'not_found' },
  METHOD_NOT_ALLOWED: { status: 405, type: INVALID },
  BODY_TOO_LARGE: { status: 413, type: INVALID },
  BAD_CONTENT_TYPE: { status: 415, type: INVALID, code: 'unsupported_content_type' },
  QUEUE_FULL: { status: 429, type: 'rate_limit_error', retryAfterSeconds: 1 },
  QUEUE_TIMEOUT: { status: 429, type: 'rate_limit_error', retryAfterSeconds: 1 },
  BODIES_TOO_LARGE: { status: 429, type: 'rate_limit_error', retryAfterSeconds: 1 },
  MODEL_LOADING: { status: 503, type: 'server_error', retryAfterSeconds: 1 },
  MODEL_FAILED: { status: 503, type: 'server_error' },
  ENGINE_DIED: { status: 503, type: 'server_error' },
  ENGINE_CLOSED: { status: 503, type: 'server_error' },
  SERVER_STOPPING: { status: 503, type: 'server_error', retryAfterSeconds: 5 },
  /** Nobody is there to read it; the number is the one that proxies use in logs. */
  CANCELLED: { status: 499, type: INVALID },
};

const SERVER_FAULT: Row = { status: 500, type: 'server_error' };

/** Fields that hold a prompt; every body has one of them. */
const PROMPT_FIELDS = ['messages', 'input', 'prompt', 'content', 'tokens'];

/** Anything thrown, as a status and its words. `body`: of the request, to name the field of its prompt. Never throws. */
export function toHttpError(error: unknown, body?: unknown): HttpError {
  if (hasZodFastifySchemaValidationErrors(error)) return fromSchema(error.validation[0]);
  if (error instanceof ColiError) return fromColi(error, body);
  return fromFastify(error);
}

function fromColi(error: ColiError, body: unknown): HttpError {
  const row = BY_CODE[error.code] ?? (error instanceof RequestError ? { status: 400, type: INVALID } : SERVER_FAULT);
  const { parameter } = error.details;
  const hint = row.hint ?? error.hint;
  return {
    status: row.status,
    type: row.type,
    code: row.code ?? error.code.toLowerCase(),
    param: typeof parameter === 'string' ? parameter : row.ofPrompt ? promptField(body) : null,
    message: hint ? `${error.message}; ${hint}` : error.message,
    retryAfterSeconds: row.retryAfterSeconds ?? null,
    ours: row.status === 500,
  };
}

function promptField(body: unknown): string | null {
  const fields = (body ?? {}) as Record<string, unknown>;
  return PROMPT_FIELDS.find(field => fields[field] != null) ?? null;
}

interface Issue {
  readonly code?: string;
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly keys?: readonly string[];
  readonly expected?: string;
  readonly errors?: readonly (readonly Issue[])[];
}

/** The first field that does not match the route's schema. */
function fromSchema(error: ZodFastifySchemaValidationError): HttpError {
  const { instancePath, keyword, message, params } = error;
  const path = instancePath.split('/').filter(step => step !== '');
  const issue = innermost({ ...params, code: keyword, path, message: message ?? 'is not what this route takes' });
  const steps = [...issue.path, ...(issue.keys?.slice(0, 1) ?? [])];
  const param = formatJsonPath(steps.map(step => (/^\d+$/.test(String(step)) ? Number(step) : String(step)))).replace(
    /^\$\.?/,
    '',
  );
  const what = issue.message.replace(/^Invalid input: /, '');
  return invalid(400, 'invalid_value', param === '' ? what : `${param}: ${what}`, param === '' ? null : param);
}

/** Of a field that may be one thing or another, what is wrong with the one that fits best. */
function innermost(issue: Issue): Issue {
  const branches = (issue.errors ?? []).filter(issues => issues.length > 0).map(issues => issues[0]);
  if (branches.length === 0) return issue;
  const best = branches.reduce((a, b) => (b.path.length > a.path.length ? b : a));
  if (best.path.length > 0) return innermost({ ...best, path: [...issue.path, ...best.path] });
  const expected = branches.flatMap(branch => branch.expected ?? []);
  return expected.length < branches.length
    ? { ...best, path: issue.path }
    : { path: issue.path, message: `expected ${[...new Set(expected)].join(' or ')}` };
}

/** Errors of Fastify's own: the body's size, type and syntax. The rest is unexpected. */
function fromFastify(error: unknown): HttpError {
  const { code, statusCode, message } = error as { code?: string; statusCode?: number; message?: string };
  switch (code) {
    case 'FST_ERR_CTP_BODY_TOO_LARGE':
      return invalid(413, 'body_too_large', `${message}; send at most 4 MiB`);
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
      return invalid(
        415,
        'unsupported_content_type',
        'the content type must be application/json; send the body as JSON with that header',
      );
    case 'FST_ERR_CTP_INVALID_CONTENT_LENGTH':
      return invalid(400, 'bad_body', 'the body is not as long as content-length says; send its length in bytes');
    case 'FST_ERR_CTP_EMPTY_JSON_BODY':
      return invalid(400, 'bad_body', 'the body is empty; send a JSON object');
  }
  if (statusCode !== undefined && statusCode >= 400 && statusCode < 500) {
    return invalid(statusCode, 'bad_request', message ?? 'the request cannot be read');
  }
  return {
    status: 500,
    type: 'server_error',
    code: 'internal_error',
    param: null,
    message: 'the server failed on this request; its log has the reason',
    retryAfterSeconds: null,
    ours: true,
  };
}

function invalid(status: number, code: string, message: string, param: string | null = null): HttpError {
  return { status, type: INVALID, code, param, message, retryAfterSeconds: null, ours: false };
}

/** The body of OpenAI's errors. */
export interface OpenAiErrorBody {
  error: { message: string; type: string; param: string | null; code: string | null };
}

export function openAiErrorBody({ message, type, param, code }: HttpError): OpenAiErrorBody {
  return { error: { message, type, param, code } };
}
