import { expect, test } from 'vitest';
import { answers } from '../../../test/support/turn-server.ts';
import type { TurnEvent } from '../turn.ts';
import { type AnthropicEvent, messageEvents, SIGNATURE } from './anthropic-events.ts';
import { collectMessage } from './anthropic-message.ts';

const OPTIONS = { id: 'msg_1', model: 'nano', hideThinking: false };

function play(...script: Parameters<typeof answers>) {
  return messageEvents(answers(...script)({} as never, new AbortController().signal), OPTIONS);
}

async function all(events: AsyncIterable<AnthropicEvent>): Promise<AnthropicEvent[]> {
  const list: AnthropicEvent[] = [];
  for await (const event of events) list.push(event);
  return list;
}

/** One word for each event: what happens to which block. */
function outline(events: readonly AnthropicEvent[]): string[] {
  return events.map(event => {
    if (event.type === 'content_block_start') return `start ${event.index} ${event.content_block.type}`;
    if (event.type === 'content_block_delta') return `${event.index} ${event.delta.type}`;
    return event.type === 'content_block_stop' ? `stop ${event.index}` : event.type;
  });
}

const EVERYTHING: TurnEvent[] = [
  { type: 'progress', done: 8, total: 20, etaMs: null },
  { type: 'reasoning', text: 'Hm' },
  { type: 'reasoning', text: 'm.' },
  { type: 'text', text: 'Let me ' },
  { type: 'text', text: 'see.' },
  { type: 'call', index: 0, id: 'call_a', name: 'weather' },
  { type: 'arguments', index: 0, text: '{"city": ' },
  { type: 'arguments', index: 0, text: '"Roma"}' },
  { type: 'call', index: 1, id: 'call_b', name: 'time' },
];

test('blocks come one after the other, each opened and closed', async () => {
  const events = await all(play(EVERYTHING, { finish: 'tool_calls' }));
  expect(outline(events)).toEqual([
    'message_start',
    'ping',
    'ping',
    'start 0 thinking',
    '0 thinking_delta',
    '0 thinking_delta',
    '0 signature_delta',
    'stop 0',
    'start 1 text',
    '1 text_delta',
    '1 text_delta',
    'stop 1',
    'start 2 tool_use',
    '2 input_json_delta',
    '2 input_json_delta',
    'stop 2',
    'start 3 tool_use',
    'stop 3',
    'message_delta',
    'message_stop',
  ]);
  expect(events.at(-2)).toEqual({
    type: 'message_delta',
    delta: { stop_reason: 'tool_use', stop_sequence: null },
    usage: {
      input_tokens: 8,
      cache_read_input_tokens: 12,
      cache_creation_input_tokens: 0,
      output_tokens: 7,
      output_tokens_details: { thinking_tokens: 3 },
    },
  });
});

test('the message in one piece says the same', async () => {
  const message = await collectMessage(play(EVERYTHING, { finish: 'tool_calls' }));
  expect(message).toMatchObject({
    id: 'msg_1',
    type: 'message',
    role: 'assistant',
    model: 'nano',
    stop_reason: 'tool_use',
  });
  expect(message.content).toEqual([
    { type: 'thinking', thinking: 'Hmm.', signature: SIGNATURE },
    { type: 'text', text: 'Let me see.', citations: null },
    { type: 'tool_use', id: 'call_a', name: 'weather', input: { city: 'Roma' } },
    { type: 'tool_use', id: 'call_b', name: 'time', input: {} },
  ]);
  expect(message.usage.input_tokens + message.usage.cache_read_input_tokens).toBe(20);
});

test('thinking can come without its text', async () => {
  const turn = answers(EVERYTHING)({} as never, new AbortController().signal);
  const { content } = await collectMessage(messageEvents(turn, { ...OPTIONS, hideThinking: true }));
  expect(content[0]).toEqual({ type: 'thinking', thinking: '', signature: SIGNATURE });
});

test.each([
  [{ finish: 'stop', stopSequence: null }, 'end_turn', null],
  [{ finish: 'stop', stopSequence: 'END' }, 'stop_sequence', 'END'],
  [{ finish: 'length' }, 'max_tokens', null],
  [{ finish: 'tool_calls' }, 'tool_use', null],
] as const)('%j', async (end, stop_reason, stop_sequence) => {
  const message = await collectMessage(play([{ type: 'text', text: 'x' }], end));
  expect(message).toMatchObject({ stop_reason, stop_sequence });
});

test('an answer without a token is an empty message', async () => {
  expect(outline(await all(play([])))).toEqual(['message_start', 'ping', 'message_delta', 'message_stop']);
  expect((await collectMessage(play([]))).content).toEqual([]);
});

test('a call that was cut off keeps what is complete', async () => {
  const cut: TurnEvent[] = [
    { type: 'call', index: 0, id: 'call_a', name: 'weather' },
    { type: 'arguments', index: 0, text: '{"city": "Roma", "days": [1, 2' },
  ];
  const { content, stop_reason } = await collectMessage(play(cut, { finish: 'length' }));
  expect(content).toEqual([{ type: 'tool_use', id: 'call_a', name: 'weather', input: { city: 'Roma', days: [1] } }]);
  expect(stop_reason).toBe('max_tokens');
});

test('arguments of a call that is not open, and a turn without end, are bugs', async () => {
  await expect(all(play([{ type: 'arguments', index: 0, text: '{}' }]))).rejects.toThrow('while null is open');
  const endless = (async function* (): AsyncGenerator<TurnEvent> {
    yield { type: 'accepted', promptTokens: 1 };
  })();
  await expect(collectMessage(messageEvents(endless, OPTIONS))).rejects.toMatchObject({ code: 'TURN_WITHOUT_END' });
});
