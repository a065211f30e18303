import { afterEach, describe, expect, it } from 'vitest';
import { CLOSED, CRASHED, type GrammarSpec, TIMED_OUT } from './api.ts';
import { GrammarService, type GrammarServiceOptions } from './service.ts';
import { BYTES, Client, nanoVocabulary, randomNumbers, STOP, textOf } from './test-support.ts';

const open: GrammarService[] = [];

function service(options: Partial<GrammarServiceOptions> = {}): GrammarService {
  const made = new GrammarService({ ...BYTES, ...options });
  open.push(made);
  return made;
}

afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});

const literal = (text: string): GrammarSpec => ({ kind: 'literal', text });

/** Answers with the only allowed id, up to `count` of them or the stop. */
async function follow(client: Client, count = 1000): Promise<string> {
  for (let i = 0; i < count; i++) {
    const allowed = await client.allowed();
    expect(allowed).toHaveLength(1);
    client.accept(allowed![0]);
    if (allowed![0] === STOP) break;
  }
  return textOf(client.ids, BYTES);
}

describe('GrammarService', () => {
  it('gives masks for the ids so far, and the stop id where the language ends', async () => {
    const client = new Client(await service().compile(literal('hé'), 10));
    expect(await follow(client)).toBe('hé');
    expect(client.ids.at(-1)).toBe(STOP);
    expect(await client.allowed()).toEqual([STOP]);
  });

  it('serves several constraints, also of one grammar', async () => {
    const grammars = service();
    const texts = ['first', 'second', 'first', 'third'];
    const clients = await Promise.all(texts.map(async text => new Client(await grammars.compile(literal(text), 20))));
    const answers = clients.map(() => '');
    for (let step = 0; step < 7; step++) {
      for (const [i, client] of clients.entries()) {
        const [next] = (await client.allowed())!;
        if (next === STOP) continue;
        client.accept(next);
        answers[i] += String.fromCharCode(next);
      }
    }
    expect(answers).toEqual(texts);
  });

  it('has special tokens as parts that no text can spell', async () => {
    const token = { kind: 'token', text: '<pad>' } as const;
    const spec = { kind: 'sequence', parts: [token, literal('a'), token, { kind: 'regex', pattern: '.' }] } as const;
    const client = new Client(await service().compile(spec, 10));
    for (const id of [257, 97, 257]) {
      expect(await client.allowed()).toEqual([id]);
      client.accept(id);
    }
    // any character, but no special token and no half of a pair
    expect(await client.allowed()).not.toContain(257);
    client.accept(0xed);
    expect(Math.max(...(await client.allowed())!)).toBe(0x9f);
  });

  it('spells out a token that the tokenizer does not have as a special one', async () => {
    const client = new Client(await service().compile({ kind: 'token', text: '<tag>' }, 10));
    expect(await follow(client)).toBe('<tag>');
  });

  it('keeps a required special token from being spelled byte by byte where text may come too', async () => {
    const token = { kind: 'token', text: '<pad>' } as const;
    const client = new Client(await service().compile({ kind: 'choice', options: [token, literal('x')] }, 10));
    expect(await client.allowed()).toEqual([120, 257]);
  });

  it('takes ids back', async () => {
    const client = new Client(await service().compile({ kind: 'regex', pattern: 'ab|cd' }, 10));
    expect(await client.allowed()).toEqual([97, 99]);
    client.accept(97);
    expect(await client.allowed()).toEqual([98]);
    client.accept(98);
    expect(await client.allowed()).toEqual([STOP]);
    client.accept(STOP);
    await client.allowed();
    client.takeBack(3);
    expect(await client.allowed()).toEqual([97, 99]);
    client.accept(99);
    expect(await client.allowed()).toEqual([100]);
  });

  it('ends a constraint whose id is not allowed', async () => {
    const client = new Client(await service().compile(literal('ab'), 10));
    await client.allowed();
    client.accept(99);
    expect(await client.allowed()).toBeNull();
    expect(client.status).toBe(CRASHED);
  });

  it('ends a constraint that no token can continue', async () => {
    const vocabulary = { ...BYTES, stopIds: [] };
    const client = new Client(await service(vocabulary).compile(literal('a'), 10));
    client.accept(97);
    expect(await client.allowed()).toBeNull();
    expect(client.status).toBe(CRASHED);
  });

  it('refuses what it cannot honour, and goes on', async () => {
    const grammars = service();
    const client = new Client(await grammars.compile(literal('still here'), 20));
    await expect(
      grammars.compile({ kind: 'json_schema', schema: { not: { type: 'null' } } }, 10),
    ).rejects.toMatchObject({
      name: 'RequestError',
      code: 'UNSUPPORTED_SCHEMA',
      details: { keyword: 'not', path: '#/not' },
    });
    await expect(grammars.compile({ kind: 'gbnf', text: 'root ::= x' }, 10)).rejects.toMatchObject({
      code: 'INVALID_GRAMMAR',
    });
    expect(await follow(client)).toBe('still here');
  });

  it('fails only the constraint that hangs', async () => {
    const grammars = service({ faults: { hang: 'hangs' }, limits: { maskMs: 600 } });
    const client = new Client(await grammars.compile(literal('neighbour'), 20));
    await follow(client, 4);
    const hanging = new Client(await grammars.compile(literal('hangs'), 20));
    await follow(hanging, 1);
    expect(await hanging.allowed()).toBeNull();
    expect(hanging.status).toBe(TIMED_OUT);
    expect(await follow(client)).toBe('neighbour');
    const later = new Client(await grammars.compile(literal('later'), 20));
    expect(await follow(later)).toBe('later');
  });

  it('fails only the constraint whose language takes too long to follow', async () => {
    const grammars = service({ limits: { maskMs: 600 } });
    const client = new Client(await grammars.compile(literal('neighbour'), 20));
    await follow(client, 4);
    // How often each of them has been repeated can be told in a thousand ways.
    const pattern = '(((a{1,100}){1,100}){1,100}){1,100}';
    const slow = new Client(await grammars.compile({ kind: 'regex', pattern }, 200));
    for (let i = 0; i < 200; i++) slow.accept(97);
    expect(await slow.allowed()).toBeNull();
    expect(slow.status).toBe(TIMED_OUT);
    expect(await follow(client)).toBe('neighbour');
  });

  it('fails only the constraint that kills the worker', async () => {
    const grammars = service({ faults: { crash: 'dies' } });
    const client = new Client(await grammars.compile(literal('neighbour'), 20));
    await follow(client, 4);
    const dying = new Client(await grammars.compile(literal('dies'), 20));
    await follow(dying, 1);
    const second = grammars.compile(literal('second'), 20);
    expect(await dying.allowed()).toBeNull();
    expect(dying.status).toBe(CRASHED);
    expect(await follow(client)).toBe('neighbour');
    expect(await follow(new Client(await second))).toBe('second');
  });

  it('fails a compilation that takes too long, and no other', async () => {
    const grammars = service({ ...nanoVocabulary(), limits: { compileMs: 500 } });
    const options = Array.from({ length: 900 }, (_, i) => [`p${i}`, { type: 'string', enum: [`a${i}`, 'b'] }]);
    const slow = grammars.compile(
      { kind: 'json_schema', schema: { type: 'object', properties: Object.fromEntries(options) } },
      10,
    );
    const after = grammars.compile(literal('x'), 10);
    await expect(slow).rejects.toMatchObject({ name: 'RequestError', code: 'GRAMMAR_TOO_SLOW' });
    const client = new Client(await after);
    expect((await client.allowed())!.length).toBeGreaterThan(0);
  });

  it('fails a grammar that the library dies of, and no other', async () => {
    const grammars = service();
    const client = new Client(await grammars.compile(literal('neighbour'), 20));
    await follow(client, 3);
    // More than its memory may hold.
    const values = Array.from({ length: 5000 }, (_, i) => `${i}`.padStart(90, 'long '));
    const large = grammars.compile({ kind: 'json_schema', schema: { enum: values } }, 10);
    await expect(large).rejects.toMatchObject({ name: 'RequestError', code: 'GRAMMAR_FAILED' });
    expect(await follow(client)).toBe('neighbour');
  });

  it('can be cancelled, before and while it compiles', async () => {
    const grammars = service();
    await expect(grammars.compile(literal('x'), 10, AbortSignal.abort())).rejects.toMatchObject({ code: 'CANCELLED' });
    const abort = new AbortController();
    const compiling = grammars.compile(literal('y'), 10, abort.signal);
    abort.abort();
    await expect(compiling).rejects.toMatchObject({ code: 'CANCELLED' });
    expect(await follow(new Client(await grammars.compile(literal('z'), 10)))).toBe('z');
  });

  it('forgets released constraints', async () => {
    const grammars = service();
    const released = new Client(await grammars.compile(literal('ab'), 10));
    await released.allowed();
    released.release();
    const client = new Client(await grammars.compile(literal('cd'), 10));
    released.accept(97);
    expect(await follow(client)).toBe('cd');
    expect(released.status).toBe(0);
  });

  it('closes while constraints wait', async () => {
    const grammars = service({ faults: { hang: 'hangs' } });
    const client = new Client(await grammars.compile(literal('hangs'), 10));
    await follow(client, 1);
    const waiting = client.allowed();
    const compiling = grammars.compile(literal('x'), 10);
    await Promise.all([
      expect(compiling).rejects.toMatchObject({ code: 'GRAMMAR_SERVICE_CLOSED' }),
      grammars.close(),
      waiting.then(allowed => expect(allowed).toBeNull()),
    ]);
    expect(client.status).toBe(CLOSED);
    await expect(grammars.compile(literal('x'), 10)).rejects.toMatchObject({ code: 'GRAMMAR_SERVICE_CLOSED' });
  });

  it('answers with the tokens of a real vocabulary, special ones excepted', async () => {
    const nano = nanoVocabulary();
    const grammars = service(nano);
    const client = new Client(await grammars.compile({ kind: 'json_object' }, 400));
    const random = randomNumbers(7);
    for (let step = 0; step < 300; step++) {
      const allowed = (await client.allowed())!;
      // Beyond the end, `special` is undefined.
      expect(allowed.filter(id => nano.tokenBytes.special[id] !== 0 && !nano.stopIds.includes(id))).toEqual([]);
      const ends = allowed.filter(id => nano.stopIds.includes(id));
      const id = ends[0] ?? allowed[Math.floor(random() * allowed.length)];
      client.accept(id);
      if (ends.length > 0) break;
    }
    expect(client.ids.length).toBeGreaterThan(0);
  });
});
