import { describe, expect, test } from 'vitest';
import { call, chat, collect, HERMES, never, outcome, setUp, THINKS, TOOLS } from '../../test/support/turns.ts';

describe('tools', () => {
  test('calls have ids, ascending indices, and end the turn', async () => {
    const answer = ['ok ', call('get', 'a'), '\n', call('put', 'b')];
    const { events, text, calls, end, engine } = await outcome({ answer, text: HERMES }, chat({ tools: TOOLS }));
    expect(text).toBe('ok');
    expect(calls).toEqual([
      { name: 'get', arguments: '{"q": "a"}' },
      { name: 'put', arguments: '{"q": "b"}' },
    ]);
    expect(end.finish).toBe('tool_calls');
    const ids = events.flatMap(event => (event.type === 'call' ? [event.id] : []));
    expect(new Set(ids).size).toBe(2);
    for (const id of ids) expect(id).toMatch(/^call_[0-9a-f]{24}$/);
    const functions = TOOLS.map(tool => ({ type: 'function', function: tool }));
    expect(engine.requests[0].prompt).toMatchObject({ tools: functions });
  });

  test('a template without tools gets them described', async () => {
    const answer = ['{"tool_calls": [{"name": "get", "argu', 'ments": {"q": "a"}}]}'];
    const { calls, engine } = await outcome({ answer }, chat({ tools: TOOLS }));
    expect(calls).toEqual([{ name: 'get', arguments: '{"q": "a"}' }]);
    const { prompt } = engine.requests[0];
    if (!('messages' in prompt)) throw new Error('no messages');
    expect(prompt.tools).toBeUndefined();
    expect(prompt.messages[0]).toMatchObject({ role: 'system', content: expect.stringContaining('"name":"get"') });
  });

  test('with tool_choice none the template has no tools and the answer no calls', async () => {
    const answer = [call('get', 'a')];
    const request = chat({ tools: TOOLS, toolChoice: 'none' });
    const { text, end, engine } = await outcome({ answer, text: HERMES }, request);
    expect({ text, finish: end.finish }).toEqual({ text: answer[0], finish: 'stop' });
    expect(engine.requests[0].prompt).not.toHaveProperty('tools');
  });

  test('without parallel calls the second one never reaches the client, and the engine stops', async () => {
    const answer = [call('get', 'a'), call('put', 'b'), ' and so on'];
    const request = chat({ tools: TOOLS, parallelToolCalls: false });
    const { calls, text, end, engine } = await outcome({ answer, text: HERMES }, request);
    expect(calls).toEqual([{ name: 'get', arguments: '{"q": "a"}' }]);
    expect({ text, finish: end.finish, tokens: engine.tokens }).toEqual({ text: '', finish: 'tool_calls', tokens: 2 });
  });

  test('a required call is a constraint, and its arguments come while they are written', async () => {
    const answer = ['<tool_call>\n{"name": "get", "arguments": ', '{"q": "', 'long', ' text"}', '}\n</tool_call>'];
    const request = chat({ tools: TOOLS, toolChoice: 'required', parallelToolCalls: false });
    const { events, engine } = await outcome({ answer, text: HERMES }, request);
    expect(engine.requests[0].constraint?.grammar.kind).toBe('choice');
    const pieces = events.flatMap(event => (event.type === 'arguments' ? [event.text] : []));
    expect(pieces).toEqual(['{"q": "', 'long', ' text"}']);
  });

  test('a required call that the token limit cuts ends with length', async () => {
    const answer = ['<tool_call>\n{"name": "get", "arguments": {"q": "'];
    const request = chat({ tools: TOOLS, toolChoice: { name: 'get' } });
    expect((await outcome({ answer, text: HERMES, finishReason: 'length' }, request)).end.finish).toBe('length');
  });

  test.each([
    [
      'a format and a required call',
      chat({ tools: TOOLS, toolChoice: 'required' }, { format: { kind: 'json_object' } }),
      'tool_choice',
    ],
    [
      'a beginning and a required call',
      chat({ tools: TOOLS, toolChoice: 'required', continueFinal: true }),
      'tool_choice',
    ],
    ['a beginning and a format', chat({ continueFinal: true }, { format: { kind: 'json_object' } }), 'response_format'],
    ['a required call without tools', chat({ toolChoice: 'required' }), 'tool_choice'],
    ['a tool that is not declared', chat({ tools: TOOLS, toolChoice: { name: 'del' } }), 'tool_choice'],
    ['an empty stop string', chat({ tools: TOOLS }, { stop: [''] }), 'stop'],
  ])('%s: refused by name, before a place is taken', async (_, request, parameter) => {
    const { runner, admission } = setUp({ answer: [], text: HERMES });
    const refused = { name: 'RequestError', details: { parameter } };
    await expect(collect(runner.run(request, never()))).rejects.toMatchObject(refused);
    await expect(runner.check(request, never())).rejects.toMatchObject(refused);
    expect(admission.counts.admitted).toBe(0);
  });

  test('a format beside tools leaves the model the choice', async () => {
    const format = { kind: 'json_object' } as const;
    const { engine } = await outcome({ answer: ['{}'], text: HERMES }, chat({ tools: TOOLS }, { format }));
    expect(engine.requests[0].constraint?.grammar).toMatchObject({
      kind: 'choice',
      options: [format, { kind: 'repeat' }],
    });
  });
});

describe('reasoning', () => {
  test('is told apart and counted, tags included', async () => {
    const answer = ['<think>', '\n', 'plan', '\n', '</think>', '\n\n', 'answer'];
    const { reasoning, text, end } = await outcome({ answer, text: THINKS }, chat());
    expect({ reasoning, text }).toEqual({ reasoning: 'plan', text: 'answer' });
    expect(end.usage).toMatchObject({ completionTokens: 7, reasoningTokens: 5 });
  });

  test('may begin in the prompt', async () => {
    const promptEnd = ['assistant\n', '<think>', '\n'];
    const { reasoning, text } = await outcome({ answer: ['plan', '</think>', 'a'], text: THINKS, promptEnd }, chat());
    expect({ reasoning, text }).toEqual({ reasoning: 'plan', text: 'a' });
  });

  test('is all there is when the limit comes early', async () => {
    const { reasoning, text, end } = await outcome(
      { answer: ['<think>', 'plan'], text: THINKS, finishReason: 'length' },
      chat(),
    );
    expect({ reasoning, text, finish: end.finish }).toEqual({ reasoning: 'plan', text: '', finish: 'length' });
  });

  const format = { kind: 'json_object' } as const;
  test.each([
    ['open in the prompt', ['<think>'], null, 'after'],
    ['closed in the prompt', ['<think></think>\n'], null, 'at once'],
    ['left to a model that may reason', ['assistant'], null, 'opened, after'],
    ['not wanted', ['assistant'], false, 'at once'],
    ['not wanted, but open', ['<think>'], false, 'after'],
  ])('a format holds behind it: %s', async (_, promptEnd, thinking, holds) => {
    const { engine } = await outcome(
      { answer: ['x', '</think>', '{}'], text: THINKS, promptEnd },
      chat({ thinking }, { format }),
    );
    const last = engine.requests.at(-1)!;
    const ids = 'ids' in last.prompt ? last.prompt.ids : [];
    const opened = engine.textOf(ids).endsWith('assistant|<think>') ? 'opened, ' : '';
    expect(opened + (last.constraint?.after === '</think>' ? 'after' : 'at once')).toBe(holds);
    expect(last.constraint?.grammar).toBe(format);
  });

  test('an answer that ends before its format could begin is an error', async () => {
    const { runner } = setUp({ answer: ['x'], text: THINKS, promptEnd: ['<think>'] });
    const error = collect(runner.run(chat({}, { format }), never()));
    await expect(error).rejects.toMatchObject({ code: 'FORMAT_NOT_REACHED' });
  });

  test('a format needs a token that ends the reasoning', async () => {
    const { runner, engine } = setUp({ answer: [], text: { ...THINKS, addedTokens: [] }, promptEnd: ['<think>'] });
    const error = collect(runner.run(chat({}, { format }), never()));
    await expect(error).rejects.toMatchObject({ code: 'FORMAT_AFTER_REASONING' });
    expect(engine.open).toBe(0);
  });
});

describe('stop strings', () => {
  test('do not act in reasoning and calls, and end the visible text across tokens', async () => {
    const answer = ['<think>', 'STOP', '</think>', 'a ', call('get', 'STOP'), ' b', 'c ST', 'OP d', ' never'];
    const request = chat({ tools: TOOLS }, { stop: ['STOP'] });
    const { reasoning, text, calls, end, engine } = await outcome({ answer, text: THINKS }, request);
    expect({ reasoning, text }).toEqual({ reasoning: 'STOP', text: 'a bc ' });
    expect(calls).toEqual([{ name: 'get', arguments: '{"q": "STOP"}' }]);
    expect(end).toMatchObject({ finish: 'tool_calls', stopSequence: 'STOP' });
    expect(engine.requests[0]).not.toHaveProperty('stop');
    expect(engine.tokens).toBe(8);
  });

  test('a beginning of one that leads nowhere is text', async () => {
    const { text, end } = await outcome({ answer: ['a ST'], text: THINKS }, chat({}, { stop: ['STOP'] }));
    expect({ text, finish: end.finish, stop: end.stopSequence }).toEqual({ text: 'a ST', finish: 'stop', stop: null });
  });

  test('are the engine’s where all text is visible', async () => {
    const { end } = await outcome({ answer: ['a'], stopReason: 'b' }, chat({}, { stop: ['b'] }));
    expect(end).toMatchObject({ finish: 'stop', stopSequence: 'b' });
  });
});

describe('log-probabilities', () => {
  test('come with their piece; those of tags and calls with none', async () => {
    const answer = ['<think>', '\n', 'pl', 'an', '</think>', '\n', 'say', ' ', '😀', '\n', call('get', 'a')];
    const { events } = await outcome({ answer, text: THINKS }, chat({ tools: TOOLS }, { logprobs: 1 }));
    const tokens = (type: string) =>
      events.flatMap(event =>
        event.type === type && 'logprobs' in event ? event.logprobs!.map(({ token }) => token) : [],
      );
    expect(tokens('reasoning')).toEqual(['pl', 'an']);
    expect(tokens('text')).toEqual(['say', ' ', '😀']);
    const smile = { token: '😀', bytes: [...Buffer.from('😀')], logprob: -0.5 };
    expect(events.filter(event => event.type === 'text').at(-1)).toMatchObject({
      logprobs: [{}, { ...smile, top: [smile] }],
    });
  });

  test('nothing is lost over stop strings that were not', async () => {
    const { events } = await outcome(
      { answer: ['a S', 'TO', 'x'], text: THINKS },
      chat({}, { stop: ['STOP'], logprobs: 0 }),
    );
    const all = events.flatMap(event => (event.type === 'text' ? event.logprobs!.map(({ token }) => token) : []));
    expect(all).toEqual(['a S', 'TO', 'x']);
  });
});
