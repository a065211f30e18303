/** Everything that can go wrong has a class (who should look) and a stable code (what a program may test for). */

/** Base of every error this project throws on purpose. `hint` is the next thing to try. */
export class ColiError extends Error {
  readonly code: string;
  readonly hint: string | undefined;
  /** Machine-readable facts: file, tensor, expected, got, ... */
  readonly details: Readonly<Record<string, unknown>>;

  constructor(code: string, message: string, options: ErrorFacts = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    this.code = code;
    this.hint = options.hint;
    this.details = options.details ?? {};
  }
}

export interface ErrorFacts {
  hint?: string;
  details?: Record<string, unknown>;
  cause?: unknown;
}

/** A model file is damaged, hostile or incomplete. */
export class ModelFileError extends ColiError {}
/** A config value is missing, of a wrong type or out of range; `details.path` names it. */
export class ConfigError extends ColiError {}
/** tokenizer.json or the chat template cannot be used, or a text cannot be encoded. */
export class TokenizerError extends ColiError {}
/** A read from storage failed: `details` has file, offset, expected and got bytes. */
export class StorageError extends ColiError {}
/** The budget cannot hold what was asked for; the message has the numbers. */
export class PlanError extends ColiError {}
/** The requested kernels cannot run here, or failed their self-test. */
export class KernelError extends ColiError {}
/** A value that must be finite is not; names the layer (and expert) where it appeared first. */
export class NumericError extends ColiError {}
/** A request asks for something impossible: a bad parameter, a prompt that does not fit. */
export class RequestError extends ColiError {}
/** The command line is wrong (exit code 2). */
export class UsageError extends ColiError {}
/** A conversion cannot start, continue or finish. */
export class ConvertError extends ColiError {}
/** The hub of models refuses, cannot be reached, or sends what was not asked for. */
export class HubError extends ColiError {}
/** A bug of ours: a broken invariant or a dead worker. */
export class InternalError extends ColiError {}

const CLASSES = {
  ModelFileError,
  ConfigError,
  TokenizerError,
  StorageError,
  PlanError,
  KernelError,
  NumericError,
  RequestError,
  UsageError,
  ConvertError,
  HubError,
  InternalError,
} as const;

/** Plain form of an error for messages between threads and for `--json`. */
export interface ErrorWire {
  class: string;
  code: string;
  message: string;
  hint?: string;
  details: Record<string, unknown>;
  stack?: string;
}

export function errorToWire(error: unknown): ErrorWire {
  const given = error instanceof Error ? error : new Error(String(error));
  const e = isOutOfFiles(given) ? tooManyFiles(given) : given;
  if (e instanceof ColiError) {
    return {
      class: e.name,
      code: e.code,
      message: e.message,
      hint: e.hint,
      details: { ...e.details },
      stack: e.stack,
    };
  }
  return { class: 'InternalError', code: 'INTERNAL', message: e.message, details: {}, stack: e.stack };
}

/** Longer chains of causes nobody makes. */
const MAX_CAUSES = 8;

/** Whoever ran into the system's limit: a file that cannot be opened, a thread that cannot start. */
function isOutOfFiles(error: Error): boolean {
  if (error instanceof ColiError && error.code === TOO_MANY_FILES) return false;
  let cause: unknown = error;
  for (let i = 0; i < MAX_CAUSES && cause instanceof Error; i++, cause = cause.cause) {
    // threads and the loader of modules say it in words only
    if (/\bE[MN]FILE\b|: too many open files/.test(`${(cause as { code?: unknown }).code} ${cause.message}`))
      return true;
  }
  return false;
}

const TOO_MANY_FILES = 'TOO_MANY_FILES';

function tooManyFiles(cause: Error): StorageError {
  return new StorageError(
    TOO_MANY_FILES,
    `the system's limit of open files is too low: ${cause.message.replace(/\.$/, '')}`,
    {
      hint: 'raise it with "ulimit -n 1024" and start again; each thread and each reader takes about 4, each file of the model 1',
      cause,
    },
  );
}

export function errorFromWire(wire: ErrorWire): ColiError {
  const Class = CLASSES[wire.class as keyof typeof CLASSES] ?? InternalError;
  const error = new Class(wire.code, wire.message, { hint: wire.hint, details: wire.details });
  if (wire.stack) error.stack = wire.stack;
  return error;
}
