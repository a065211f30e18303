/** Short ways to say what a check found. */

import { errorToWire } from '../common/errors.ts';
import type { Finding } from './types.ts';

type Facts = Readonly<Record<string, unknown>>;

export function pass(summary: string, details: Facts = {}): Finding {
  return { status: 'pass', summary, details, fix: null };
}

export function warn(summary: string, fix: string, details: Facts = {}): Finding {
  return { status: 'warn', summary, details, fix };
}

export function fail(summary: string, fix: string, details: Facts = {}): Finding {
  return { status: 'fail', summary, details, fix };
}

/** `summary` is the reason. */
export function skip(summary: string, details: Facts = {}): Finding {
  return { status: 'skip', summary, details, fix: null };
}

/** For errors that state no next step: bugs of ours, mostly. */
const UNKNOWN_FIX = 'this should not happen: please report it, with the output of coli doctor --json';

/** What an error says, as a failure with its code. */
export function failed(error: unknown): Finding {
  const { code, message, hint, details } = errorToWire(error);
  return fail(message, hint ?? UNKNOWN_FIX, { code, ...plainFacts(details) });
}

/** Details of errors may hold anything; a report is plain JSON. */
function plainFacts(details: Facts): Facts {
  return JSON.parse(JSON.stringify(details)) as Facts;
}
