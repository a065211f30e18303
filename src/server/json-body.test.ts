import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { MIB } from '../common/units.ts';
import { parseBody } from './json-body.ts';
import { ask, startTestServer } from './test-support.ts';

const parse = (text: string) => parseBody(Buffer.from(text));
const refusal = (text: string) => {
  try {
    parse(text);
    return null;
  } catch (error) {
    const { code, details } = error as { code: string; details: { parameter?: string } };
    return [code, details.parameter];
  }
};

describe('bodies', () => {
  test('what JSON.stringify makes of an object comes back', () => {
    const objects = fc.dictionary(
      fc.string().filter(key => key !== '__proto__' && !key.includes('\0')),
      fc.jsonValue(),
    );
    fc.assert(
      fc.property(objects, value => {
        const text = JSON.stringify(value);
        fc.pre(!text.includes('\\u0000') && !text.includes('"__proto__"'));
        expect(parse(text)).toEqual(JSON.parse(text));
      }),
      { seed: 5 },
    );
  });

  test.each([
    ['', 'BAD_BODY', undefined],
    [' ', 'BAD_BODY', undefined],
    ['{:', 'BAD_BODY', undefined],
    ['{"a":1', 'BAD_BODY', undefined],
    ['[1]', 'BAD_BODY', undefined],
    ['null', 'BAD_BODY', undefined],
    ['"text"', 'BAD_BODY', undefined],
    ['{"a":NaN}', 'BAD_BODY', undefined],
    ['{"a":1,"a":2}', 'BAD_BODY', 'a'],
    ['{"m":[{"x":1,"\\u0078":2}]}', 'BAD_BODY', 'm[0].x'],
    ['{"__proto__":{}}', 'BAD_BODY', '__proto__'],
    ['{"a":[{"__proto__":1}]}', 'BAD_BODY', 'a[0].__proto__'],
    ['{"a":"\\ud800"}', 'BAD_PARAMETER', 'a'],
    ['{"m":[{"content":"x\\udc00"}]}', 'BAD_PARAMETER', 'm[0].content'],
    ['{"m":[0,"a\\u0000b"]}', 'BAD_PARAMETER', 'm[1]'],
    ['{"m":{"\\ud800":1}}', 'BAD_PARAMETER', expect.stringContaining('m')],
  ])('%s', (text, code, parameter) => expect(refusal(text)).toEqual([code, parameter]));

  test('bytes that are no UTF-8 are not replaced in silence', () => {
    expect(() => parseBody(Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]))).toThrow('UTF-8');
  });

  test('3,000 brackets, open or closed, in any place', () => {
    for (const bracket of ['[', '{"a":']) {
      const open = bracket.repeat(3000);
      expect(refusal(open)?.[0]).toBe('BAD_BODY');
      expect(refusal(`{"a":${open}`)?.[0]).toBe('BAD_BODY');
    }
    expect(refusal(`{"a":${'['.repeat(3000)}${']'.repeat(3000)}}`)?.[0]).toBe('BAD_BODY');
    expect(parse(`{"a":"${'['.repeat(3000)}"}`)).toBeTruthy();
  });
});

describe('over HTTP', () => {
  test('only JSON, only uncompressed, only so much', async () => {
    const { port } = await startTestServer();
    for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data; boundary=x', 'x']) {
      const { status, json } = await ask(port, '/echo', { body: '{}', headers: { 'content-type': type } });
      expect([type, status, json.error.code]).toEqual([type, 415, 'unsupported_content_type']);
    }
    const typed = { 'content-type': 'application/json; charset=utf-8' };
    expect((await ask(port, '/tokenize', { body: '{"content":"a"}', headers: typed })).status).toBe(200);
    const gzip = await ask(port, '/echo', { body: '{}', headers: { 'content-encoding': 'gzip' } });
    expect(gzip.status).toBe(415);
    const large = await ask(port, '/tokenize', { body: { content: 'x'.repeat(4 * MIB) } });
    expect(large).toMatchObject({ status: 413, json: { error: { code: 'body_too_large' } } });
    expect((await ask(port, '/tokenize', { body: { content: 'x'.repeat(4 * MIB - 100) } })).status).toBe(200);
  });

  test('what is wrong with the JSON is quoted as it is, control characters apart', async () => {
    const { port } = await startTestServer();
    const message = async (body: string) => (await ask(port, '/echo', { body })).json.error.message;
    expect(await message('{"a":NaN}')).toContain('"{"a":NaN}" is not valid JSON');
    expect(await message('{"a":\u0007}')).toMatch(/\\u0007/);
  });

  test('a missing field is told in words', async () => {
    const { port } = await startTestServer();
    const missing = { '/tokenize': 'content', '/detokenize': 'tokens', '/apply-template': 'messages' };
    for (const [path, field] of Object.entries(missing)) {
      const { status, json } = await ask(port, path, { body: {} });
      expect([status, json.error.param]).toEqual([400, field]);
      expect(json.error.message).toMatch(new RegExp(`^${field} is missing: it must be a`));
    }
  });

  test('an empty POST is told so', async () => {
    const { port } = await startTestServer();
    for (const headers of [{}, { 'content-type': 'application/json' }]) {
      const { status, json } = await ask(port, '/echo', { method: 'POST', headers });
      expect([status, json.error.message]).toEqual([400, expect.stringContaining('empty')]);
    }
  });

  test('every wrong value of every field is 400 and names it', async () => {
    const { port } = await startTestServer();
    const values = ['null', '""', '-1', '[]', '{}', 'true', '1e400', '"\\ud800"', '[[]]', '0.5'];
    // field -> the values above that it may have
    const routes: Record<string, Record<string, string[]>> = {
      '/tokenize': {
        content: ['""'],
        add_special: ['null', 'true'],
        parse_special: ['null', 'true'],
        with_pieces: ['null', 'true'],
      },
      '/detokenize': { tokens: ['[]'] },
      '/apply-template': { messages: [], tools: ['null', '[]'], chat_template_kwargs: ['null', '{}'] },
    };
    const required: Record<string, string> = { content: '"a"', messages: '[{"role":"user","content":"a"}]' };
    for (const [path, fields] of Object.entries(routes)) {
      for (const [field, allowed] of Object.entries(fields)) {
        for (const value of values) {
          const others = Object.keys(fields).filter(name => name !== field && name in required);
          const body = `{${others.map(name => `"${name}":${required[name]},`).join('')}"${field}":${value}}`;
          const { status, json } = await ask(port, path, { body });
          const param = status === 200 ? null : json.error.param?.replace(/[[.].*/, '');
          const expected = allowed.includes(value) ? [body, 200, null] : [body, 400, field];
          expect([body, status, param]).toEqual(expected);
        }
      }
    }
  });
});
