/** Kept keys and values, neighbours and restarts change how fast an answer comes, and not a byte of it. */

import { cpSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { MESSAGES } from '../fixtures/scripts.ts';
import { writeTiny } from '../fixtures/tiny.ts';
import { fileDirectory, type Served, startServe } from '../support/serve.ts';
import { readChatReply } from '../support/wire.ts';

const directory = fileDirectory();
const model = path.join(directory, 'model');
/** Many slots, keeps everything; one slot, which every test prompt finds occupied by another one. */
let warm: Served;
let cold: Served;

beforeAll(async () => {
  writeTiny(model);
  [warm, cold] = await Promise.all([
    startServe({ model, args: ['--ctx', '1000', '--slots', '16'] }),
    startServe({ model, args: ['--ctx', '1000'] }),
  ]);
});

interface Told {
  text: string;
  cached: number;
  prompt: number;
}

async function complete(server: Served, prompt: string, more: object = {}): Promise<Told> {
  const request = { prompt, max_tokens: 12, temperature: 0, ...more };
  const { status, text, body } = await server.post('/v1/completions', request);
  expect(status, text).toBe(200);
  const { prompt_tokens, prompt_tokens_details } = body.usage;
  return { text: body.choices[0].text, cached: prompt_tokens_details.cached_tokens, prompt: prompt_tokens };
}

/** Computed from nothing: another prompt has just taken the only place. */
async function fromNothing(prompt: string, more: object = {}): Promise<string> {
  await complete(cold, prompt.startsWith('~') ? '!' : '~', { max_tokens: 1 });
  const { text, cached } = await complete(cold, prompt, more);
  expect(cached).toBe(0);
  return text;
}

const words = (n: number, seed = 1) =>
  Array.from({ length: n }, (_, i) => 'abcdefghij'[(i * i * seed + 7 * i) % 10]).join('');

describe('the same request again', () => {
  test('greedy, ten times: warm, cold and beside others the same bytes', async () => {
    const prompt = words(120);
    const expected = await fromNothing(prompt);
    for (let i = 0; i < 5; i++) expect((await complete(warm, prompt)).text).toBe(expected);
    const noise = Array.from({ length: 8 }, (_, i) => complete(warm, words(60 + i, i + 2), { max_tokens: 30 }));
    const again = await Promise.all(Array.from({ length: 5 }, () => complete(warm, prompt)));
    expect(new Set(again.map(({ text }) => text))).toEqual(new Set([expected]));
    await Promise.all(noise);
  });

  test('what is kept is counted: all but the last token of the prompt', async () => {
    const prompt = `kept ${words(100)}`;
    expect((await complete(warm, prompt)).cached).toBeLessThan(10);
    const second = await complete(warm, prompt);
    expect(second.cached).toBe(second.prompt - 1);
  });
});

test('an edited history: twenty random edits give what a fresh start gives', async () => {
  let text = words(200, 3);
  let random = 12345;
  const next = (n: number) => (random = (random * 1103515245 + 12345) % 2 ** 31) % n;
  for (let step = 0; step < 20; step++) {
    const at = next(text.length);
    const edits = [
      () => text.slice(0, at + 1),
      () => `${text.slice(0, at)}${words(next(80) + 1, step + 2)}`,
      () => `${text.slice(0, at)}Z${text.slice(at)}`,
      () => `${text}${words(next(150) + 1, step + 5)}`,
    ];
    text = edits[next(4)]().slice(0, 900);
    const { text: answer } = await complete(warm, text);
    expect(answer, `step ${step}`).toBe(await fromNothing(text));
  }
});

test('a history that shares its beginning is used as far as it is the same, and only so far', async () => {
  const head = `head ${words(150, 7)}`;
  await complete(warm, `${head} one end`);
  const { cached } = await complete(warm, `${head} other end`);
  expect(cached).toBe(`${head} o`.length);
  // a first line that changes leaves nothing to use
  const changed = `date: 2026-01-02\n${head}`;
  const before = `date: 2026-01-01\n${head}`;
  await complete(warm, before);
  expect((await complete(warm, changed)).cached).toBe('date: 2026-01-0'.length);
  expect((await complete(warm, `@${changed}`)).cached).toBe(0);
});

describe('side by side', () => {
  const prompts = Array.from({ length: 16 }, (_, i) => (i % 4 === 0 ? words(1, i + 1) : words(i * 25, i + 1)));

  test('sixteen at once, of 1 to 375 tokens: each has the bytes that it has alone, also when repeated', async () => {
    const requests = prompts.map((prompt, i) => [prompt, { seed: i, temperature: i % 2, max_tokens: 20 }] as const);
    const alone: string[] = [];
    for (const [prompt, more] of requests) alone.push(await fromNothing(prompt, more));
    for (let round = 0; round < 2; round++) {
      const together = await Promise.all(requests.map(([prompt, more]) => complete(warm, prompt, more)));
      expect(together.map(({ text }) => text)).toEqual(alone);
    }
    const { text: metrics } = await warm.get('/metrics');
    const value = (name: string) => Number(new RegExp(`^${name} (\\d+)`, 'm').exec(metrics)![1]);
    // they were really together
    expect(value('coli_engine_decode_tokens_total')).toBeGreaterThan(value('coli_engine_decode_steps_total') * 1.5);
  });

  test('four seeds of one prompt at once are the four seeds one by one', async () => {
    const prompt = words(90, 11);
    const ask = (seed: number) => complete(warm, prompt, { seed, temperature: 1 });
    const one = [];
    for (const seed of [1, 2, 3, 4]) one.push((await ask(seed)).text);
    const four = await Promise.all([1, 2, 3, 4].map(ask));
    expect(four.map(({ text }) => text)).toEqual(one);
    expect(new Set(one).size).toBe(4);
  });

  test('chat, messages and responses of one conversation use the same keys and values', async () => {
    const messages = [{ role: 'user', content: words(80, 13) }];
    await warm.post('/v1/chat/completions', { messages, max_tokens: 1 });
    const chat = (await warm.post('/v1/chat/completions', { messages, max_tokens: 1 })).body;
    const { usage } = readChatReply(chat);
    expect(usage?.prompt_tokens_details.cached_tokens).toBe(usage!.prompt_tokens - 1);
    const claude = (await warm.post('/v1/messages', { messages, max_tokens: 1 })).body.usage;
    expect(claude).toMatchObject({ input_tokens: 1, cache_read_input_tokens: usage!.prompt_tokens - 1 });
    const response = (await warm.post('/v1/responses', { input: messages[0].content, max_output_tokens: 16 })).body
      .usage;
    expect(response.input_tokens_details.cached_tokens).toBe(usage!.prompt_tokens - 1);
  });
});

describe('keys and values on disk', () => {
  const kv = path.join(directory, 'kv');
  const start = (from = model, args: string[] = [], ctx = '1000') =>
    startServe({ model: from, args: ['--ctx', ctx, '--kv-dir', kv, ...args] });
  const sizeOf = (folder: string): number =>
    readdirSync(folder, { withFileTypes: true, recursive: true })
      .filter(entry => entry.isFile())
      .reduce((sum, entry) => sum + statSync(path.join(entry.parentPath, entry.name)).size, 0);
  const conversations = [`first ${words(400, 17)}`, `second ${words(400, 19)}`];

  test('two conversations outlive a restart, more than once, with the same bytes', async () => {
    const expected = [await fromNothing(conversations[0]), await fromNothing(conversations[1])];
    const one = await start();
    for (const [i, prompt] of conversations.entries()) expect((await complete(one, prompt)).text).toBe(expected[i]);
    expect(await one.stop()).toEqual({ code: 0, signal: null });
    for (let restart = 0; restart < 2; restart++) {
      const next = await start();
      for (let round = 0; round < 2; round++) {
        for (const [i, prompt] of conversations.entries()) {
          const { text, cached, prompt: tokens } = await complete(next, prompt);
          expect(text).toBe(expected[i]);
          expect(cached / tokens).toBeGreaterThan(0.8);
        }
      }
      await next.stop();
    }
  });

  test('another context changes nothing; other weights or another template find nothing of it', async () => {
    const smaller = await start(model, [], '600');
    const kept = await complete(smaller, conversations[0]);
    expect(kept.text).toBe(await fromNothing(conversations[0]));
    await smaller.stop();

    const changed = path.join(directory, 'changed');
    writeTiny(changed, { seed: 2 });
    const other = await start(changed);
    expect((await complete(other, conversations[0])).cached).toBe(0);
    await other.stop();

    const template = path.join(directory, 'template');
    cpSync(model, template, { recursive: true });
    const config = JSON.parse(readFileSync(path.join(template, 'tokenizer_config.json'), 'utf8'));
    config.chat_template = `<|system|>new<|end|>${MESSAGES}<|assistant|>`;
    writeFileSync(path.join(template, 'tokenizer_config.json'), JSON.stringify(config));
    const messages = [{ role: 'user', content: words(300, 23) }];
    const before = await start();
    const ask = (server: Served) => server.post('/v1/chat/completions', { messages, max_tokens: 8, temperature: 0 });
    await ask(before);
    await before.stop();
    const after = await start(template);
    const { usage } = readChatReply((await ask(after)).body);
    // the beginning of the prompt is another one now
    expect(usage?.prompt_tokens_details.cached_tokens).toBe(0);
    await after.stop();
  });

  test('a damaged file is not used, and one line says so', async () => {
    for (const entry of readdirSync(kv, { withFileTypes: true, recursive: true })) {
      if (!entry.isFile()) continue;
      const file = path.join(entry.parentPath, entry.name);
      const bytes = readFileSync(file);
      if (bytes.length < 100) continue;
      bytes[Math.floor(bytes.length / 2)] ^= 0xff;
      writeFileSync(file, bytes);
    }
    const server = await start();
    const { text } = await complete(server, conversations[1]);
    expect(text).toBe(await fromNothing(conversations[1]));
    await server.stop();
    expect(server.stderr()).toMatch(/kv|keys/i);
  });

  test('fifty turns stay within the size that was given', async () => {
    const limit = 1_000_000;
    const folder = path.join(directory, 'small');
    const server = await startServe({
      model,
      args: ['--ctx', '1000', '--kv-dir', folder, '--kv-dir-size', String(limit)],
    });
    let text = 'turn ';
    for (let turn = 0; turn < 50; turn++) {
      text += words(15, turn + 2);
      await complete(server, text, { max_tokens: 1 });
    }
    await server.stop();
    expect(sizeOf(folder)).toBeGreaterThan(0);
    expect(sizeOf(folder)).toBeLessThanOrEqual(limit);
  });
});

test('many short requests: memory stays where it is, and afterwards the processor is idle', async () => {
  const rss = () => Number(/^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${warm.pid}/status`, 'utf8'))![1]) / 1024;
  const ticks = () => {
    const fields = readFileSync(`/proc/${warm.pid}/stat`, 'utf8').split(') ')[1].split(' ');
    return Number(fields[11]) + Number(fields[12]);
  };
  const burst = async (n: number) => {
    for (let i = 0; i < n; i += 10) {
      await Promise.all(Array.from({ length: 10 }, (_, j) => complete(warm, words(5, i + j + 1), { max_tokens: 2 })));
    }
  };
  await burst(250);
  const before = rss();
  await burst(250);
  expect(rss() - before).toBeLessThan(30);
  const busy = ticks();
  await new Promise(resolve => setTimeout(resolve, 1500));
  // a hundredth of a second each; spinning lanes would take 150
  expect(ticks() - busy).toBeLessThan(30);
});
