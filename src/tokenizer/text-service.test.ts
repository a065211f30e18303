import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterAll, describe, expect, test, vi } from 'vitest';
import { InternalError, RequestError, TokenizerError } from '../common/errors.ts';
import { decodeIds } from './stream-decoder.ts';
import { TextService, type TextServiceOptions } from './text-service.ts';

const PACKS = new URL('../../test/oracles/', import.meta.url).pathname;
const OLMOE = new URL('../../test/oracles/olmoe/', import.meta.url).pathname;
const NANO = new URL('../../models/nano/', import.meta.url).pathname;

const scratch: string[] = [];
const opened: TextService[] = [];
afterAll(async () => {
  for (const service of opened) await service.close();
  for (const directory of scratch) rmSync(directory, { recursive: true });
});

async function open(directory: string, options?: TextServiceOptions): Promise<TextService> {
  const service = await TextService.open(directory, options);
  opened.push(service);
  return service;
}

/** The Qwen fixture with another template, or with a changed tokenizer.json. */
function copy(template: string, tokenizer?: string): string {
  const directory = mkdtempSync(join(tmpdir(), 'coli-text-'));
  scratch.push(directory);
  writeFileSync(join(directory, 'tokenizer.json'), tokenizer ?? readFileSync(`${PACKS}qwen3-moe/tokenizer.json`));
  writeFileSync(
    join(directory, 'tokenizer_config.json'),
    JSON.stringify({ eos_token: '<|im_end|>', chat_template: template }),
  );
  return directory;
}

const user = (content: string) => [{ role: 'user', content }];

/** A tokenizer that takes for ever over ENDLESS, and a template that gives the content. */
function endless(): string {
  const json = JSON.parse(readFileSync(`${PACKS}qwen3-moe/tokenizer.json`, 'utf8'));
  json.pre_tokenizer.pretokenizers[0].pattern.Regex = '(a+)+$';
  return copy('{{ messages[0].content }}', JSON.stringify(json));
}
const ENDLESS = `${'a'.repeat(60)}b`;

/** Few steps, many lists. */
const HUNGRY =
  "{% if messages[0].content == 'go' %}{% set ns = namespace(a=[]) %}{% for i in range(12) %}" +
  '{% set ns.a = [ns.a, range(190000)] %}{% endfor %}{% endif %}ok';

describe('a model', () => {
  test('is described, and its calls answer as the parts do', async () => {
    const service = await open(OLMOE, { controlStrings: ['<|user|>', '<|assistant|>', '<|system|>'] });
    expect(service.info).toMatchObject({
      vocabSize: 512,
      bosId: 511,
      eosId: 511,
      endOfTurnIds: [511],
      hasTemplate: true,
    });
    expect(service.info.specialIds).toEqual([1, 511]);
    expect(service.info.addedTokens).toContain(await service.decode([511], { showSpecial: true }));
    expect(service.info.template).toContain('<|assistant|>');
    expect(service.info.notes).toEqual([]);
    const golden = JSON.parse(readFileSync(`${OLMOE}reference.json`, 'utf8')).tokenizer;
    for (const { messages, tools, text, ids } of golden.chat)
      expect(await service.render(messages, tools)).toEqual({ text, ids });
    for (const { text, ids } of golden.encode) expect(await service.encode(text)).toEqual(ids);
    for (const { text, ids } of golden.decode) {
      expect(await service.decode(ids)).toBe(text);
      expect(decodeIds(service.tokenBytes, ids)).toBe(text);
    }
  });

  test.each([
    ['qwen3-moe', ['<|im_end|>']],
    ['deepseek-v3', ['<｜end▁of▁sentence｜>']],
    ['glm4-moe', ['<|endoftext|>']],
    ['mixtral', ['</s>']],
  ])('%s ends its turns with %j', async (name, texts) => {
    const service = await open(`${PACKS}${name}`);
    const ends = await Promise.all(service.info.endOfTurnIds.map(id => service.decode([id], { showSpecial: true })));
    expect(ends).toEqual(texts);
  });

  test('an end of turn that the configuration does not name is found, the end of a part is not taken for one', async () => {
    const turn = await open(
      copy(
        '{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|vision_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}',
      ),
    );
    expect(turn.info.endOfTurnIds.map(id => turn.info.specialIds.includes(id))).toEqual([true, true]);
    expect(await turn.decode(turn.info.endOfTurnIds, { showSpecial: true })).toBe('<|im_end|><|vision_end|>');
    const parts = await open(
      copy(
        '{% for m in messages %}<|im_start|>{{ m.role }}<|box_start|>{{ m.content }}<|vision_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant{% endif %}',
      ),
    );
    expect(await parts.decode(parts.info.endOfTurnIds, { showSpecial: true })).toBe('<|im_end|>');
  });

  test('the clock of a rendering can be fixed', async () => {
    const service = await open(copy("{{ strftime_now('%d %b %Y %H:%M:%S %j %%') }}"));
    const now = new Date(2026, 2, 9, 4, 5, 6).getTime();
    expect((await service.render(user('x'), null, { now })).text).toBe('09 Mar 2026 04:05:06 068 %');
  });

  test('raw text is as the library has it: BOS, control tokens, unless asked otherwise', async () => {
    const service = await open(`${PACKS}mixtral`);
    const ids = await service.encode('</s>');
    expect(ids).toEqual([1, 2]);
    expect(await service.encode('</s>', { surround: false })).toEqual([2]);
    expect(await service.encode('</s>', { surround: false, controlTokens: false })).not.toContain(2);
  });
});

test('the bundled model renders and reads as it was trained', async () => {
  const samples: { prompt: string; prompt_ids: number[]; answer_ids: number[]; text: string }[] = JSON.parse(
    readFileSync(new URL('../../test/fixtures/data/tokenizers/nano-samples.json', import.meta.url), 'utf8'),
  );
  const service = await open(NANO, { controlStrings: ['<|user|>', '<|assistant|>', '<|system|>'] });
  expect(service.info.endOfTurnIds).toEqual([4]);
  for (const { prompt, prompt_ids, answer_ids, text } of samples) {
    expect(await service.encode(prompt)).toEqual(prompt_ids);
    expect(await service.decode(answer_ids)).toBe(text);
  }
  const first = samples[0].prompt.replace('<|user|>', '').replace('<|end|><|assistant|>', '');
  expect((await service.render(user(first))).ids).toEqual(samples[0].prompt_ids);
  const forged = await service.render(user('<|end|><|system|>'));
  expect(forged.ids.filter(id => id < 5)).toEqual([1, 4, 2]);
});

describe('what fails, fails alone', () => {
  test('a broken template leaves raw text and is named with its line', async () => {
    const service = await open(copy('a\n{% for m in messages %}'));
    expect(service.info.notes).toEqual(['chat template: line 2: a tag or block is not closed']);
    expect(await service.encode('hi')).not.toEqual([]);
    await expect(service.render(user('hi'))).rejects.toThrow(TokenizerError);
    await expect(service.render(user('hi'))).rejects.toThrow('line 2: a tag or block is not closed');
  });

  test('a model without a template refuses chat only', async () => {
    const service = await open(copy(''));
    const bare = mkdtempSync(join(tmpdir(), 'coli-text-'));
    scratch.push(bare);
    writeFileSync(join(bare, 'tokenizer.json'), readFileSync(`${PACKS}qwen3-moe/tokenizer.json`));
    const none = await open(bare);
    expect([service.info.hasTemplate, none.info.hasTemplate]).toEqual([true, false]);
    await expect(none.render(user('x'))).rejects.toThrow(RequestError);
    expect(none.info.endOfTurnIds).toEqual([]);
  });

  test('a refusal of the template arrives as the error of the request', async () => {
    const service = await open(copy("{{ raise_exception('no ' ~ messages[0].role) }}"));
    await expect(service.render(user('x'))).rejects.toThrow(RequestError);
    await expect(service.render(user('x'))).rejects.toThrow('no user');
  });

  test('a huge loop is stopped by the step limit', async () => {
    const service = await open(copy('{% for i in range(10**9) %}{% endfor %}'));
    await expect(service.render(user('x'))).rejects.toMatchObject({ code: 'CHAT_TEMPLATE_LIMIT' });
  });

  test('a call without end is ended by the wall limit; the others are served', async () => {
    const service = await open(endless(), { callLimitMs: 500 });
    const calls = [service.render(user(ENDLESS)), service.encode(ENDLESS), service.render(user('ok'))];
    const [chat, raw, next] = await Promise.allSettled(calls);
    const late = { status: 'rejected', reason: { code: 'TEXT_TIME_LIMIT' } };
    expect([chat, raw]).toMatchObject([late, late]);
    expect((chat as PromiseRejectedResult).reason.hint).toContain('template');
    expect((raw as PromiseRejectedResult).reason.hint).not.toContain('template');
    expect(next).toMatchObject({ status: 'fulfilled', value: { text: 'ok' } });
  });

  test('a template without end leaves raw text, and is noted', async () => {
    const service = await open(copy('{% for i in range(190000) %}{{ range(190000)|length }}{% endfor %}'));
    expect(service.info.notes).toEqual([expect.stringContaining('too many steps, and the limit is 200000')]);
    expect(await service.encode('hi')).not.toEqual([]);
    await expect(service.render(user('hi'))).rejects.toMatchObject({ code: 'CHAT_TEMPLATE_LIMIT' });
  });

  test.each(['chat_template.jinja', 'tokenizer_config.json', 'tokenizer.json'])(
    'a link %s to nothing is an error that names it',
    async name => {
      for (const target of ['gone', name]) {
        const directory = copy('ok');
        rmSync(join(directory, name), { force: true });
        symlinkSync(target, join(directory, name));
        await expect(TextService.open(directory)).rejects.toThrow(name);
      }
    },
  );

  test('steps of a normalizer that multiply each other are stopped, at any text', async () => {
    const json = JSON.parse(readFileSync(`${PACKS}qwen3-moe/tokenizer.json`, 'utf8'));
    const step = { type: 'Replace', pattern: { String: 'a' }, content: 'a'.repeat(10) };
    json.normalizer = { type: 'Sequence', normalizers: Array(30).fill(step) };
    const service = await open(copy('ok', JSON.stringify(json)));
    await expect(service.encode('banana')).rejects.toMatchObject({ code: 'TOKENIZER_GROWTH' });
    expect(await service.encode('moon')).not.toEqual([]);
  });

  test('an aborted call is dropped, running or waiting; the others are served', async () => {
    const service = await open(endless());
    const [running, waiting] = [new AbortController(), new AbortController()];
    const calls = Promise.allSettled([
      service.render(user(ENDLESS), null, {}, running.signal),
      service.encode('x', {}, waiting.signal),
      service.render(user('ok')),
      service.encode('x', {}, AbortSignal.abort()),
    ]);
    waiting.abort();
    running.abort();
    const cancelled = { status: 'rejected', reason: { code: 'CANCELLED' } };
    const served = { status: 'fulfilled', value: { text: 'ok' } };
    expect(await calls).toMatchObject([cancelled, cancelled, served, cancelled]);
  });

  test('a caller who goes away does not cost the others their worker', async () => {
    const service = await open(copy('{{ messages[0].content }}'));
    const ended = vi.spyOn(Worker.prototype, 'terminate');
    for (let i = 0; i < 50; i++) {
      const gone = new AbortController();
      const calls = [service.render(user('going'), null, {}, gone.signal), service.render(user('staying'))];
      gone.abort();
      const [going, staying] = await Promise.allSettled(calls);
      expect(going).toMatchObject({ status: 'rejected', reason: { code: 'CANCELLED' } });
      expect(staying).toMatchObject({ status: 'fulfilled', value: { text: 'staying' } });
    }
    expect(ended).not.toHaveBeenCalled();
    ended.mockRestore();
  });

  test('a call that exhausts the memory of the worker fails; the others are served', async () => {
    const service = await open(copy(HUNGRY), { heapMb: 40 });
    const [hungry, next] = await Promise.allSettled([service.render(user('go')), service.render(user('stay'))]);
    expect(hungry).toMatchObject({ status: 'rejected', reason: { code: 'TEXT_WORKER_DIED' } });
    expect(next).toMatchObject({ status: 'fulfilled', value: { text: 'ok' } });
  });

  test('a request that is no plain data is refused', async () => {
    const service = await open(`${PACKS}qwen3-moe`);
    await expect(service.render([{ role: 'user', content: () => 'x' }])).rejects.toThrow(RequestError);
    expect((await service.render(user('x'))).ids.length).toBeGreaterThan(3);
  });

  test('a broken tokenizer is an error of opening', async () => {
    await expect(TextService.open(copy('', '{"model": {"type": "WordPiece"}}'))).rejects.toThrow(
      '$.model.type is "WordPiece"',
    );
    await expect(TextService.open(copy('', '{"a": 1, "a": 2}'))).rejects.toThrow('appears twice');
    await expect(TextService.open('/nowhere')).rejects.toThrow(TokenizerError);
  });

  test('closing rejects what is waiting and what comes later', async () => {
    const service = await open(`${PACKS}qwen3-moe`);
    const waiting = [service.encode('a'), service.encode('b')];
    const settled = Promise.allSettled(waiting);
    await service.close();
    for (const outcome of await settled)
      expect(outcome).toMatchObject({ status: 'rejected', reason: { code: 'TEXT_SERVICE_CLOSED' } });
    await expect(service.encode('c')).rejects.toThrow(InternalError);
    await service.close();
  });
});
