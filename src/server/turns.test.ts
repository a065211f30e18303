import { describe, expect, test } from 'vitest';
import { chat, collect, never, outcome, setUp, THINKS, text } from '../../test/support/turns.ts';
import { RequestError } from '../common/errors.ts';
import type { ChatTurn } from './turn.ts';

describe('a chat', () => {
  test('is accepted, computes its prompt, answers and ends, in this order', async () => {
    const { events } = await outcome(
      { answer: ['Hel', 'lo', ''], cachedTokens: 1 },
      chat({}, { seed: 5, maxTokens: 9 }),
    );
    const usage = { promptTokens: 2, cachedTokens: 1, completionTokens: 3, reasoningTokens: 0 };
    expect(events).toEqual([
      { type: 'accepted', promptTokens: 2, sampling: { temperature: 0, seed: 1 } },
      { type: 'progress', done: 1, total: 4, etaMs: 300 },
      { type: 'progress', done: 4, total: 4, etaMs: 0 },
      { type: 'text', text: 'Hel' },
      { type: 'text', text: 'lo' },
      { type: 'end', finish: 'stop', stopSequence: null, usage },
    ]);
  });

  test('gives the engine the sampling, and the template its variables', async () => {
    const { engine } = await outcome(
      { answer: [] },
      chat({ thinking: false, reasoningEffort: 'low' }, { seed: 5, stop: ['x'] }),
    );
    expect(engine.requests).toEqual([
      {
        prompt: {
          messages: [{ role: 'user', content: 'hi' }],
          variables: { enable_thinking: false, reasoning_effort: 'low' },
        },
        seed: 5,
        stop: ['x'],
      },
    ]);
  });

  test('goes on with the last message when asked', async () => {
    const messages = [{ role: 'assistant', content: 'It is <think>pl' }];
    const request = chat({ messages, continueFinal: true });
    const { engine, reasoning, text } = await outcome({ answer: ['an', '</think>', 'done'], text: THINKS }, request);
    expect(engine.requests[0].prompt).toMatchObject({ continueFinal: true });
    expect({ reasoning, text }).toEqual({ reasoning: 'an', text: 'done' });
  });

  test('ends with length when the engine says so', async () => {
    expect((await outcome({ answer: ['a'], finishReason: 'length' }, chat())).end.finish).toBe('length');
  });

  test('tokens are counted without being run', async () => {
    const { runner, engine } = setUp({ answer: [] });
    expect(await runner.countTokens(chat().prompt as ChatTurn)).toBe(2);
    expect(engine.requests).toEqual([]);
  });

  test('the fingerprint is the engine’s', () => {
    expect(setUp({ answer: [] }).runner.fingerprint).toBe('fp_abc');
  });
});

describe('a text', () => {
  test('is continued as it is', async () => {
    const { text: shown, engine } = await outcome(
      { answer: ['<think>x</think>'], text: THINKS },
      text('Once', false, { stop: ['z'] }),
    );
    expect(shown).toBe('<think>x</think>');
    expect(engine.requests).toEqual([{ prompt: { text: 'Once' }, stop: ['z'] }]);
  });

  test('is repeated with echo, ids too', async () => {
    expect((await outcome({ answer: [' upon'] }, text('Once', true))).text).toBe('Once upon');
    const { runner, engine } = setUp({ answer: [' upon'] });
    const ids = await engine.encode({ text: 'Twice' });
    const events = await collect(runner.run(text(ids, true), never()));
    expect(events.map(event => ('text' in event ? event.text : '')).join('')).toBe('Twice upon');
    expect(engine.requests[0].prompt).toEqual({ ids });
  });
});

describe('the queue', () => {
  test('a full one refuses at once', async () => {
    const { runner, admission, engine } = setUp({ answer: [] });
    const place = admission.enter('other', never());
    await expect(collect(runner.run(chat(), never()))).rejects.toMatchObject({ code: 'QUEUE_FULL' });
    expect(engine.requests).toEqual([]);
    place.leave();
  });

  test('a request is checked while it waits, and a bad one does not wait', async () => {
    const refuses = new RequestError('CONTEXT_EXCEEDED', 'too long');
    const { runner, admission } = setUp({ answer: [], refuses }, { capacity: 1, maxQueue: 1, queueTimeoutMs: 60_000 });
    const place = admission.enter('other', never());
    await expect(collect(runner.run(chat(), never()))).rejects.toBe(refuses);
    expect(admission.counts).toMatchObject({ active: 1, queued: 0 });
    place.leave();
  });

  test('nothing is accepted before a place is free', async () => {
    const { runner, admission, engine } = setUp(
      { answer: ['a'] },
      { capacity: 1, maxQueue: 1, queueTimeoutMs: 60_000 },
    );
    const place = admission.enter('other', never());
    const events = runner.run(chat(), never())[Symbol.asyncIterator]();
    const first = events.next();
    await new Promise(resolve => setImmediate(resolve));
    expect(engine.open).toBe(1);
    expect(await Promise.race([first, 'nothing yet'])).toBe('nothing yet');
    place.leave();
    expect((await first).value).toMatchObject({ type: 'accepted' });
    await events.return?.();
    expect({ open: engine.open, generated: engine.generated }).toEqual({ open: 0, generated: 0 });
    expect(admission.counts.active).toBe(0);
  });

  test('a turn that is cancelled ends without a word and gives its place back', async () => {
    for (const when of ['waiting', 'answering']) {
      const { runner, admission, engine } = setUp(
        { answer: ['a', 'b'] },
        { capacity: 1, maxQueue: 1, queueTimeoutMs: 60_000 },
      );
      const place = when === 'waiting' ? admission.enter('other', never()) : null;
      const controller = new AbortController();
      const seen: string[] = [];
      const run = (async () => {
        for await (const event of runner.run(chat(), controller.signal)) {
          seen.push(event.type);
          if (event.type === 'text') controller.abort();
        }
      })();
      if (place) setImmediate(() => controller.abort());
      await run;
      expect(seen).toEqual(place ? [] : ['accepted', 'progress', 'progress', 'text']);
      place?.leave();
      expect({ active: admission.counts.active, open: engine.open }).toEqual({ active: 0, open: 0 });
    }
  });

  test('an engine that is closed or fails does not look like an answer', async () => {
    const closed = setUp({ answer: ['a'], finishReason: 'cancelled' });
    await expect(collect(closed.runner.run(chat(), never()))).rejects.toMatchObject({ code: 'TURN_INTERRUPTED' });
    const fails = new Error('disk');
    const failed = setUp({ answer: ['a'], fails });
    await expect(collect(failed.runner.run(chat(), never()))).rejects.toBe(fails);
    expect(failed.admission.counts.active).toBe(0);
  });

  test('a check takes no place and leaves nothing behind', async () => {
    const { runner, admission, engine } = setUp({ answer: [] });
    await runner.check(chat(), never());
    expect({ admitted: admission.counts.admitted, open: engine.open, generated: engine.generated }).toEqual({
      admitted: 0,
      open: 0,
      generated: 0,
    });
  });
});

test('an answer that is read slowly gives its place to others as soon as it is made', async () => {
  const slow = async (runsAhead: boolean) => {
    const { admission, runner } = setUp({ answer: ['a', 'b'], runsAhead });
    const events = runner.run(text('x'), never())[Symbol.asyncIterator]();
    for (let i = 0; i < 3; i++) await events.next();
    const counts = { ...admission.counts };
    const rest: string[] = [];
    for (let next = await events.next(); !next.done; next = await events.next()) rest.push(next.value.type);
    expect(rest).toEqual(['text', 'text', 'end']);
    expect(admission.counts).toMatchObject({ active: 0, completed: 1 });
    return counts.active;
  };
  expect(await slow(false)).toBe(1);
  expect(await slow(true)).toBe(0);
});

test('only so many answers may wait for their readers beside those that are made', async () => {
  const queue = { capacity: 1, maxQueue: 0, queueTimeoutMs: 1000 };
  const { admission, runner } = setUp({ answer: ['a'], runsAhead: true }, queue);
  const readers: AsyncIterator<unknown>[] = [];
  const begin = async () => {
    const events = runner.run(text('x'), never())[Symbol.asyncIterator]();
    readers.push(events);
    for (let i = 0; i < 2; i++) await events.next();
  };
  while (admission.counts.active === 0 && readers.length < 100) await begin();
  expect(readers.length).toBe(17);
  await expect(begin()).rejects.toThrow(expect.objectContaining({ code: 'QUEUE_FULL' }));
  for (const events of readers) await events.return?.();
  await begin();
  expect(admission.counts.active).toBe(0);
});
