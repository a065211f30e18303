/** Lines of a server's log: one JSON object each, or the same as short text for a terminal. */

import os from 'node:os';
import { escapeControls } from './terminal.ts';

/** Numbers as in other logs in JSON. */
export const LOG_INFO = 30;
export const LOG_WARN = 40;
export const LOG_FATAL = 60;

const LEVEL_NAMES: Readonly<Record<number, string>> = {
  10: 'TRACE',
  20: 'DEBUG',
  [LOG_WARN]: 'WARN',
  50: 'ERROR',
  [LOG_FATAL]: 'FATAL',
};

/** A line with the fields that those about requests have. */
export function logLine(level: number, msg: string, more: object = {}): string {
  return JSON.stringify({ level, time: Date.now(), pid: process.pid, hostname: os.hostname(), ...more, msg });
}

/** "12:30:05 POST /v1/responses 400 invalid_value, 3 ms, req_1". `line`: JSON; what is none is returned as it is. */
export function readableLine(line: string): string {
  let fields: Record<string, unknown>;
  try {
    fields = JSON.parse(line);
  } catch {
    return escapeControls(line.trimEnd());
  }
  const { level, time, pid: _, hostname: __, request, msg, err, ...more } = fields;
  const clock = new Date(Number(time)).toTimeString().slice(0, 8);
  const parts = [...(msg === 'request' ? requestParts(more) : otherParts(String(msg), more)), request];
  const name = LEVEL_NAMES[Number(level)];
  const text = `${clock} ${name ? `${name} ` : ''}${parts.filter(part => part !== undefined).join(', ')}`;
  const stack = (err as { stack?: unknown } | undefined)?.stack;
  const lines = [text, ...(typeof stack === 'string' ? stack.split('\n') : [])];
  return lines.map(escapeControls).join('\n');
}

function requestParts({ method, route, status, code, ms }: Record<string, unknown>): string[] {
  return [`${method} ${route} ${status}${code === undefined ? '' : ` ${code}`}`, `${ms} ms`];
}

function otherParts(msg: string, more: object): string[] {
  return Object.keys(more).length === 0 ? [msg] : [msg, JSON.stringify(more)];
}
