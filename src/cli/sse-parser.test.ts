import { describe, expect, test } from 'vitest';
import { MAX_EVENT_CHARACTERS, type SseEvent, SseParser } from './sse-parser.ts';

const bytes = (text: string) => new TextEncoder().encode(text);

/** What comes of `text` when it arrives in these pieces. */
function parse(...pieces: (string | Uint8Array)[]): SseEvent[] {
  const parser = new SseParser();
  return pieces.flatMap(piece => parser.push(typeof piece === 'string' ? bytes(piece) : piece));
}

const data = (...texts: string[]) => texts.map(text => ({ event: 'message', data: text }));

test('events end with an empty line; the last one without it is nothing', () => {
  expect(parse('data: a\n\ndata: b\n\ndata: c\n')).toEqual(data('a', 'b'));
});

test('lines end with LF, CR or CRLF', () => {
  expect(parse('data: a\r\n\r\ndata: b\r\rdata: c\n\n')).toEqual(data('a', 'b', 'c'));
});

test('lines of data are joined, one space after the colon is left out, a field may have no value', () => {
  expect(parse('data: a\ndata:b\ndata:  c\ndata\n\n')).toEqual(data('a\nb\n c\n'));
});

test('comments, unknown fields and events without data are nothing', () => {
  expect(parse(': keepalive\n\nid: 7\nretry: 1\nother\n\nevent: x\n\ndata: a\n\n')).toEqual(data('a'));
});

test('the name of an event is its own', () => {
  expect(parse('event: error\ndata: {}\n\ndata: a\n\n')).toEqual([{ event: 'error', data: '{}' }, ...data('a')]);
});

test('a byte order mark at the start is no text', () => {
  expect(parse('\ufeffdata: a\n\n')).toEqual(data('a'));
});

describe('the same whichever way it is cut', () => {
  const stream =
    ': é\r\n\r\ndata: {"x":"né 😀 中"}\r\ndata: più\r\n\r\nevent: e\rdata: 2\r\rdata: 3\n\n\r\ndata: [DONE]\n\n';
  const whole = parse(stream);

  test('into two at every byte', () => {
    expect(whole).toHaveLength(4);
    const all = bytes(stream);
    for (let at = 0; at <= all.length; at++) {
      expect(parse(all.subarray(0, at), all.subarray(at)), `cut at ${at}`).toEqual(whole);
    }
  });

  test('into single bytes, with empty pieces between', () => {
    expect(parse(...[...bytes(stream)].flatMap(byte => [Uint8Array.of(byte), Uint8Array.of()]))).toEqual(whole);
  });
});

describe('hostile streams', () => {
  const bad = (message: RegExp) =>
    expect.objectContaining({ code: 'BAD_STREAM', message: expect.stringMatching(message) });

  test('a line without an end', () => {
    const parser = new SseParser();
    const piece = bytes('x'.repeat(64 * 1024));
    const feed = () => {
      for (let i = 0; i <= MAX_EVENT_CHARACTERS / piece.length; i++) parser.push(piece);
    };
    expect(feed).toThrow(bad(/a line that is too long/));
  });

  test('an event without an end', () => {
    const parser = new SseParser();
    const piece = bytes('data:\n'.repeat(64 * 1024));
    const feed = () => {
      for (let i = 0; i < 17; i++) parser.push(piece);
    };
    expect(feed).toThrow(bad(/an event that is too long/));
  });

  test('what is not UTF-8 is not replaced', () => {
    expect(() => parse(Uint8Array.of(0x64, 0xff, 0x0a))).toThrow(bad(/not UTF-8/));
  });
});
