import { describe, expect, test } from 'vitest';
import type { ChatMessage, Engine, GenerateEvent, GenerateRequest, GenerateStats } from '../engine/api.ts';
import { ChatLoop } from './chat-loop.ts';
import { engineTalker } from './engine-talker.ts';
import { Interrupts } from './interrupts.ts';
import type { LineInput } from './line-input.ts';
import type { TalkEvent, Talker } from './talker.ts';

const STATS = {
  expert_requests: 4,
  expert_hits: 3,
  decode_tokens: 1,
  decode_s: 0.1,
  ttft_s: 0,
  bytes_read: 0,
  activations: 'int8',
} as GenerateStats;

/** Answers every message with its number of messages; "boom" fails, "slow" waits to be stopped. A token per message. */
function scriptedEngine(context: number): Engine {
  async function* generate(request: GenerateRequest, signal?: AbortSignal): AsyncGenerator<GenerateEvent> {
    const { messages } = request.prompt as { messages: ChatMessage[] };
    const last = messages.at(-1)!.content;
    if (last === 'boom') throw new Error('no luck');
    yield { type: 'start', promptIds: [1], cachedTokens: 0, sampling: { temperature: 1, topP: 1, seed: 7 } as never };
    const text = `${messages.length}:${messages.map(m => m.content!.length).join(',')}`;
    yield { type: 'token', id: 5, text };
    const slow = last === 'slow';
    if (slow && !signal?.aborted) await new Promise(resolve => signal?.addEventListener('abort', resolve));
    const finishReason = slow ? 'cancelled' : 'stop';
    yield { type: 'end', text, tokenIds: [5], finishReason, stopReason: null, stats: STATS };
  }
  const encode = async (prompt: unknown) => Array((prompt as { messages: unknown[] }).messages.length).fill(1);
  const text = { template: null, addedTokens: [], chat: {} };
  return { info: { context, maxContext: 100 }, text, generate, encode } as unknown as Engine;
}

async function talk(
  messages: (string | (() => string))[],
  { context = 50, system, talker, whole }: { context?: number; system?: string; talker?: Talker; whole?: boolean } = {},
) {
  const said: string[] = [];
  const interrupts = new Interrupts(
    () => said.push('LEFT'),
    () => (clock += 1000),
  );
  let clock = 0;
  const input: LineInput = {
    interactive: true,
    prompting: false,
    next: async () => {
      const next = messages.shift();
      return next === undefined ? null : typeof next === 'string' ? next : next();
    },
    dropTyped: () => false,
    say: () => {},
    close: () => {},
  };
  const output = {
    answer: (text: string) => {
      said.push(`A ${text}`);
      if (messages[0] === 'STOP') {
        messages.shift();
        interrupts.press();
      }
    },
    reasoning: (text: string) => said.push(`T ${text}`),
    reply: (text: string) => said.push(`R ${text}`),
    footer: (text: string) => said.push(`F ${text}`),
    error: (error: unknown) => said.push(`E ${(error as Error).message} / ${(error as { hint?: string }).hint}`),
    closed: () => false,
  };
  await new ChatLoop(talker ?? engineTalker(scriptedEngine(context)), input, output, interrupts, { system }).run();
  return said.filter(line => whole || (line !== 'A \n' && line !== 'A '));
}

const answers = (said: string[]) => said.filter(line => line.startsWith('A '));

test('each turn carries the ones before, and the system message', async () => {
  expect(answers(await talk(['hi', 'you']))).toEqual(['A 1:2', 'A 3:2,3,3']);
  expect(answers(await talk(['hi', 'you'], { system: 'be' }))).toEqual(['A 2:2,2', 'A 4:2,2,5,3']);
});

test('the footer stands under the answer', async () => {
  expect((await talk(['hi']))[1]).toBe('F [1 token, first after 0 ms, expert hits 75 %, 0 B read]');
});

test('empty lines are not sent, :quit ends', async () => {
  expect(answers(await talk(['', '  ', 'hi', ':quit', 'never']))).toEqual(['A 1:2']);
});

describe('commands', () => {
  test(':reset and :undo take turns back, the system message stays', async () => {
    expect(answers(await talk(['hi', 'you', ':undo', 'yes', ':reset', 'hi']))).toEqual([
      'A 1:2',
      'A 3:2,3,3',
      'A 3:2,3,3',
      'A 1:2',
    ]);
    expect(answers(await talk(['hi', ':reset', 'hi'], { system: 'be' }))).toEqual(['A 2:2,2', 'A 2:2,2']);
    expect(await talk([':undo'])).toEqual(['R There is nothing to take back.']);
  });

  test(':help lists them all, :stats tells about the last answer', async () => {
    const [help] = await talk([':help']);
    for (const command of [':help', ':stats', ':undo', ':reset', ':quit']) expect(help).toContain(command);
    expect(await talk([':stats'])).toEqual(['R There is no answer yet.']);
    expect((await talk(['hi', ':stats'])).at(-1)).toContain('3 of 4 requests in memory');
  });

  test('an unknown one is not sent to the model, text that only starts with a colon is', async () => {
    expect(await talk([':quti'])).toEqual([expect.stringMatching(/^R There is no command :quti; nothing was sent/)]);
    expect(await talk([':hello there'])).toEqual([expect.stringContaining('There is no command :hello;')]);
    expect(answers(await talk([': hello', ':-) hi', ' :hello there']))).toEqual([
      'A 1:7',
      'A 3:7,3,6',
      'A 5:7,3,6,7,13',
    ]);
  });

  test('a command with something after it does nothing and is not sent', async () => {
    const said = await talk(['hi', ':undo 2', ':reset\nplease', 'you']);
    expect(said.filter(line => line.startsWith('R'))).toEqual([
      expect.stringMatching(/^R :undo takes nothing after it; nothing was sent/),
      expect.stringMatching(/^R :reset takes nothing after it/),
    ]);
    expect(answers(said)).toEqual(['A 1:2', 'A 3:2,3,3']);
  });
});

test('a turn that does not fit is refused with the numbers and the conversation is kept', async () => {
  const said = await talk(['a', 'b', 'c', ':undo', 'd'], { context: 5 });
  expect(said.filter(line => line.startsWith('E'))).toEqual([
    expect.stringMatching(/has 5 tokens, and the context of 5 .* conversation is kept \/ .*:undo.*:reset.*--ctx 10/),
  ]);
  expect(answers(said)).toEqual(['A 1:1', 'A 3:1,3,1', 'A 3:1,3,1']);
});

test('a failed turn is reported and left out', async () => {
  const said = await talk(['boom', 'hi']);
  expect(said[0]).toContain('no luck');
  expect(answers(said)).toEqual(['A 1:2']);
});

test('a stopped answer stays as far as it came', async () => {
  const said = await talk(['slow', 'STOP', 'hi']);
  expect(answers(said)).toEqual(['A 1:4', 'A 3:4,3,2']);
  expect(said.find(line => line.startsWith('F'))).toContain('stopped');
});

describe('what only a server sends', () => {
  /** Gives the same events for every message and keeps what it was asked. */
  function scriptedTalker(...events: TalkEvent[]) {
    const asked: (readonly ChatMessage[])[] = [];
    const talker: Talker = {
      async *ask(messages) {
        asked.push(messages);
        yield* events;
      },
    };
    return { talker, asked };
  }
  const end = (finish: 'stop' | 'cancelled' | 'broken', error?: unknown): TalkEvent => ({
    type: 'end',
    finish,
    error,
    footer: 'figures',
    statistics: 'all figures',
  });

  test('reasoning stands on lines of its own before the answer and goes back beside it', async () => {
    const { talker, asked } = scriptedTalker(
      { type: 'reasoning', text: 'let me' },
      { type: 'reasoning', text: ' see' },
      { type: 'text', text: 'yes' },
      end('stop'),
    );
    const said = await talk(['a', 'b', ':stats'], { talker });
    expect(said.slice(0, 5)).toEqual(['T let me', 'T  see', 'T \n', 'A yes', 'F [figures]']);
    expect(said.at(-1)).toBe('R all figures');
    expect(asked[1][1]).toEqual({ role: 'assistant', content: 'yes', reasoning_content: 'let me see' });
  });

  test('an answer that broke off is said, counts as failed, and stays', async () => {
    const { talker, asked } = scriptedTalker({ type: 'text', text: 'half' }, end('broken', new Error('cable')));
    const once = ['A half', 'E cable / undefined', 'F [figures]'];
    expect(await talk(['a', 'b'], { talker })).toEqual([...once, ...once]);
    expect(asked[1].map(({ content }) => content)).toEqual(['a', 'half', 'b']);
  });

  test('one that was stopped before its first letter leaves nothing behind', async () => {
    const { talker, asked } = scriptedTalker({ type: 'reasoning', text: 'hm' }, end('cancelled'));
    await talk(['a', 'b'], { talker });
    expect(asked[1]).toEqual([{ role: 'user', content: 'b' }]);
  });

  test('a notice after the answer begins on a line of its own, and no empty line follows', async () => {
    const { talker } = scriptedTalker({ type: 'text', text: 'yes' }, { type: 'notice', text: 'changed' }, end('stop'));
    expect(await talk(['hi'], { talker, whole: true })).toEqual(['A yes', 'A \n', 'F changed', 'F [figures]']);
  });

  test('a notice stands before the answer', async () => {
    const { talker } = scriptedTalker({ type: 'notice', text: 'busy' }, { type: 'text', text: 'yes' }, end('stop'));
    expect(await talk(['a'], { talker })).toEqual(['F busy', 'A yes', 'F [figures]']);
  });

  test('a talker that never ends an answer is a bug that is told', async () => {
    const { talker } = scriptedTalker({ type: 'text', text: 'yes' });
    expect((await talk(['a'], { talker })).at(-1)).toMatch(/^E an answer ended without saying so/);
  });
});
