/** The process's two output streams: answers and JSON on stdout, everything else on stderr. */

import { ColiError, errorToWire, InternalError, StorageError } from '../common/errors.ts';
import { LOG_FATAL, LOG_INFO, LOG_WARN, logLine, readableLine } from './log-lines.ts';
import { escapeControls, isTerminal, stripControls, styled, terminalWidth, wrapLine } from './terminal.ts';

const closed = new AbortController();
let writeError: Error | undefined;

/** Aborts when stdout can take no more: the reader of a pipe went away, or the disk behind it is full. */
export const outputClosed: AbortSignal = closed.signal;

/** Must run first: without listeners a closed pipe would end the process with a stack trace. */
export function guardOutput(): void {
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') writeError ??= error;
    closed.abort();
  });
  process.stderr.on('error', () => {});
}

/** Waits until everything written has left the process; throws when stdout failed for a reason other than EPIPE. */
export async function flushOutput(): Promise<void> {
  const flushed = (stream: NodeJS.WriteStream) => new Promise<void>(resolve => stream.write('', () => resolve()));
  if (!outputClosed.aborted) await flushed(process.stdout);
  await flushed(process.stderr);
  if (!writeError) return;
  const cause = writeError;
  writeError = undefined;
  throw new StorageError('OUTPUT_FAILED', `cannot write to standard output: ${cause.message}`, {
    hint: 'free some space, or write somewhere else',
    cause,
  });
}

/** Model text: exact in a file or pipe, without control characters on a terminal. */
export function writeAnswer(text: string): void {
  if (!outputClosed.aborted) process.stdout.write(isTerminal(process.stdout) ? stripControls(text) : text);
}

/** What a model thinks before it answers: it is not the answer, so it goes to stderr, and is dim there. */
export function writeReasoning(text: string): void {
  if (text !== '') process.stderr.write(styled('dim', stripControls(text), process.stderr));
}

export function writeLine(line: string): void {
  if (!outputClosed.aborted) process.stdout.write(`${line}\n`);
}

/** Lines of ours on stdout, broken between words on a terminal. */
export function writeText(text: string): void {
  for (const line of text.split('\n')) writeLine(wrapLine(escapeControls(line), terminalWidth(process.stdout)));
}

export function writeJson(value: unknown): void {
  writeLine(JSON.stringify(value));
}

let isLog = false;

/**
 * From now on stderr is a server's log: JSON alone, our own lines and errors included, or readable lines on a terminal. Returns
 * where the server writes its lines.
 */
export function becomeLog(): { write(line: string): void } {
  if (!isTerminal(process.stderr)) {
    isLog = true;
    return process.stderr;
  }
  // the line of progress may stand there
  return { write: line => process.stderr.write(`\r\x1b[K${readableLine(line)}\n`) };
}

/** A line on stderr about what happens; `quiet` leaves it out. */
export function note(text: string, quiet = false): void {
  if (quiet) return;
  if (isLog) process.stderr.write(`${logLine(text.startsWith('WARNING') ? LOG_WARN : LOG_INFO, text)}\n`);
  else process.stderr.write(`${wrapLine(escapeControls(text), terminalWidth(process.stderr))}\n`);
}

/** Like `note`, in the colour of what is not the answer: figures, replies to commands. May have several lines. */
export function dimNote(text: string): void {
  for (const line of text.split('\n')) {
    const wrapped = wrapLine(escapeControls(line), terminalWidth(process.stderr));
    process.stderr.write(`${styled('dim', wrapped, process.stderr)}\n`);
  }
}

const BUG_HINT = 'this is a bug: please report it, with the stack that COLI_DEBUG=1 prints';

export interface ErrorReport {
  error: { code: string; message: string; hint: string | null };
}

export function errorReport(error: unknown): ErrorReport {
  const wire = errorToWire(error);
  const ours = error instanceof InternalError || !(error instanceof ColiError);
  const hint = wire.hint ?? (ours ? BUG_HINT : null);
  return { error: { code: wire.code, message: wire.message, hint } };
}

/**
 * Cause and next step in one line; the stack only with COLI_DEBUG=1. `inChat`: on a terminal the next step has a line of its
 * own, for it stands in a conversation that goes on. JSON that standard output cannot take becomes a line on stderr.
 */
export function reportError(error: unknown, json: boolean, inChat = false): void {
  const report = errorReport(error);
  const { code, message, hint } = report.error;
  const parts = [`coli: ${message}`, ...(hint ? [hint] : [])];
  const stack = process.env['COLI_DEBUG'] === '1' && error instanceof Error ? error.stack : undefined;
  if (isLog) {
    const err = stack === undefined ? {} : { err: { stack } };
    process.stderr.write(`${logLine(LOG_FATAL, parts.join('; '), { code, ...err })}\n`);
    return;
  }
  if (json && !outputClosed.aborted) writeJson(report);
  else for (const part of inChat && isTerminal(process.stderr) ? parts : [parts.join('; ')]) note(part);
  if (stack !== undefined) process.stderr.write(`${stack}\n`);
}
