import { expect, test } from 'vitest';
import { LOG_WARN, logLine, readableLine } from './log-lines.ts';

const TIME = new Date(2026, 0, 2, 3, 4, 5).getTime();
const readable = (fields: object) => readableLine(`${JSON.stringify({ level: 30, time: TIME, pid: 1, ...fields })}\n`);

test('a line of ours has the fields of the others', () => {
  expect(JSON.parse(logLine(LOG_WARN, 'a "word"', { code: 'X' }))).toEqual({
    level: 40,
    time: expect.any(Number),
    pid: process.pid,
    hostname: expect.any(String),
    code: 'X',
    msg: 'a "word"',
  });
});

test('on a terminal a request is what was asked, what came of it, how long it took, and its id', () => {
  const request = { hostname: 'h', request: 'req_1', method: 'POST', route: '/v1/responses', ms: 3, msg: 'request' };
  expect(readable({ ...request, status: 200 })).toBe('03:04:05 POST /v1/responses 200, 3 ms, req_1');
  expect(readable({ ...request, status: 400, code: 'bad_body' })).toBe(
    '03:04:05 POST /v1/responses 400 bad_body, 3 ms, req_1',
  );
});

test('other lines keep all that they say; an error has its stack, and nothing drives the terminal', () => {
  expect(readable({ msg: 'request body', body: { a: 'x\x1b[2J' }, request: 'req_1' })).toBe(
    '03:04:05 request body, {"body":{"a":"x\\u001b[2J"}}, req_1',
  );
  expect(readable({ level: 50, msg: 'a request\x1b failed', err: { message: 'm', stack: 'Error: m\n    at x' } })).toBe(
    '03:04:05 ERROR a request\\x1b failed\nError: m\n    at x',
  );
  expect(readableLine('no JSON\x1b\n')).toBe('no JSON\\x1b');
});
