/** The real program on a tiny checkpoint with random weights: its answers are noise, but always the same noise. */

import { type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';

const MODEL = path.resolve('test/oracles/olmoe');
const MAX_CONTEXT: number = JSON.parse(readFileSync(path.join(MODEL, 'config.json'), 'utf8')).max_position_embeddings;
const ENGINE = ['--model', MODEL, '--ram', '1G', '--ctx', '256', '--threads', '2'];
const LONG = ['--ignore-eos', '--max-tokens', '100000', '--temperature', '0'];

let folder: string;

beforeAll(() => {
  folder = mkdtempSync(path.join(os.tmpdir(), 'coli-e2e-'));
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

function environment(extra: Record<string, string> = {}): NodeJS.ProcessEnv {
  const env: NodeJS.ProcessEnv = { ...process.env, ...extra, NO_COLOR: '1' };
  for (const name of ['COLI_MODEL', 'COLI_DEBUG', 'FORCE_COLOR']) if (!(name in extra)) delete env[name];
  return env;
}

interface Spawned {
  input?: string | Buffer;
  env?: Record<string, string>;
  stdout?: number;
}

function coli(args: readonly string[], { input = '', env, stdout }: Spawned = {}): SpawnSyncReturns<string> {
  return spawnSync(process.execPath, ['bin/coli.js', ...args], {
    encoding: 'utf8',
    input,
    env: environment(env),
    stdio: ['pipe', stdout ?? 'pipe', 'pipe'],
  });
}

function runJson(args: readonly string[], options: Spawned = {}) {
  const { status, stdout, stderr } = coli(['run', ...ENGINE, '--json', ...args], options);
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return JSON.parse(stdout);
}

describe('run', () => {
  const args = ['--max-tokens', '12', '--ignore-eos', '--seed', '5', 'hello', 'there'];

  test('--json prints the documented object and nothing else', () => {
    const result = runJson(args);
    expect(Object.keys(result)).toEqual([
      'model',
      'prompt_ids',
      'token_ids',
      'text',
      'finish_reason',
      'seed',
      'stop_reason',
      'notes',
      'stats',
      'memory',
      'placement',
    ]);
    expect(result.placement).toMatchObject({ policy: expect.stringMatching(/^(lru|lfru|pin)$/), prefetch: 'auto' });
    expect(result).toMatchObject({ model: MODEL, finish_reason: 'length', seed: 5, stop_reason: null });
    expect(result.token_ids).toHaveLength(12);
    expect(result.stats).toMatchObject({ threads: 2, prefill_tokens: result.prompt_ids.length, decode_tokens: 12 });
    const { kernels, activations, prefetch_on, ...numbers } = result.stats;
    expect(kernels).toMatch(/^(reference|wasm-(baseline|relaxed)|native-\w+)$/);
    expect(activations).toBe('int8');
    expect(prefetch_on).toBeTypeOf('boolean');
    expect(Object.values(numbers).every(value => typeof value === 'number')).toBe(true);
  });

  test('the text on stdout is the text of --json; notes and the seed are on stderr', () => {
    const { status, stdout, stderr } = coli(['run', ...ENGINE, ...args]);
    const { text } = runJson(args);
    expect(status).toBe(0);
    expect(stdout).toBe(text.endsWith('\n') ? text : `${text}\n`);
    expect(stderr).toMatch(/12 tokens, .* read, ended at the token limit, seed 5\]\n$/);
    expect(coli(['run', ...ENGINE, '--quiet', ...args])).toMatchObject({ stdout, stderr: '' });
  });

  test('exact activations and a full context are said', () => {
    const { status, stderr } = coli(['run', ...ENGINE.with(5, '24'), '--activations', 'exact', '--ignore-eos', 'hi']);
    expect(status).toBe(0);
    expect(stderr).toMatch(/, exact activations, the context of 24 tokens is full, seed \d+\]\n$/);
    expect(runJson(['--activations', 'exact', '--max-tokens', '1', 'hi']).stats.activations).toBe('exact');
  });

  test('more threads than processors are told once', () => {
    const more = String(os.availableParallelism() + 1);
    const { stderr } = coli(['run', ...ENGINE.with(7, more), '--max-tokens', '1', 'hi']);
    expect(stderr.match(/--threads \d+ is more than this machine has/g)).toHaveLength(1);
    expect(coli(['info', ...ENGINE.with(7, more)]).stdout).toMatch(/^note +--threads \d+ is more/m);
  });

  test('without --seed a random one is used and reported, and gives the same text again', () => {
    const sampled = ['--max-tokens', '12', '--ignore-eos', '--temperature', '1'];
    const first = runJson([...sampled, 'hello']);
    expect(Number.isSafeInteger(first.seed)).toBe(true);
    expect(runJson([...sampled, '--seed', String(first.seed), 'hello']).token_ids).toEqual(first.token_ids);
  });

  test('words, a pipe and a dash are the same prompt; raw text and a system message are not', () => {
    const none = ['--max-tokens', '0'];
    const { prompt_ids: words, token_ids, text, finish_reason } = runJson([...none, 'hello', 'there']);
    expect({ token_ids, text, finish_reason }).toEqual({ token_ids: [], text: '', finish_reason: 'length' });
    expect(runJson(none, { input: 'hello there\n' }).prompt_ids).toEqual(words);
    expect(runJson([...none, '-'], { input: 'hello there\n' }).prompt_ids).toEqual(words);
    const raw = runJson([...none, '--raw', 'hello', 'there']).prompt_ids;
    expect(raw.length).toBeLessThan(words.length);
    expect(runJson([...none, '--system', 'be brief', 'hello', 'there']).prompt_ids.length).toBeGreaterThan(
      words.length,
    );
  });

  test('COLI_MODEL names the model, --model comes before it', () => {
    const { stdout } = coli(['run', '--json', '--ram', '1G', '--max-tokens', '1', 'x'], { env: { COLI_MODEL: MODEL } });
    expect(JSON.parse(stdout).model).toBe(MODEL);
    expect(runJson(['--max-tokens', '1', 'x'], { env: { COLI_MODEL: '/nowhere' } }).model).toBe(MODEL);
  });

  test('a stop string ends the answer before it', () => {
    const { text } = runJson(args);
    const stop = text.slice(3, 6);
    const stopped = runJson(['--stop', stop, ...args]);
    expect(stopped).toMatchObject({
      text: text.slice(0, text.indexOf(stop)),
      finish_reason: 'stop',
      stop_reason: stop,
    });
  });
});

describe('failures are exit code 1 with the cause and the next step', () => {
  test('a model that is not there', () => {
    const args = ['run', '--model', path.join(folder, 'no\x1b[31mwhere'), 'hi'];
    const { status, stdout, stderr } = coli(args);
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr).toMatch(/^coli: .*no\\x1b\[31mwhere.*; .+\n$/);
    expect(stderr).not.toContain('\x1b');
    const json = coli([...args, '--json']);
    expect({ status: json.status, stderr: json.stderr }).toEqual({ status: 1, stderr: '' });
    expect(JSON.parse(json.stdout)).toEqual({
      error: { code: expect.stringMatching(/^[A-Z_]+$/), message: expect.any(String), hint: expect.any(String) },
    });
    expect(coli(args, { env: { COLI_DEBUG: '1' } }).stderr).toMatch(/\n {4}at /);
  });

  test('a prompt that does not fit tells the numbers', () => {
    const { status, stdout } = coli([
      'run',
      '--model',
      MODEL,
      '--ram',
      '1G',
      '--ctx',
      '8',
      '--json',
      'word '.repeat(50),
    ]);
    expect(status).toBe(1);
    expect(JSON.parse(stdout).error).toMatchObject({
      code: 'CONTEXT_EXCEEDED',
      message: expect.stringMatching(/\d+ tokens.*8/),
      hint: expect.stringContaining('larger --ctx'),
    });
    const most = coli(['run', ...ENGINE.with(5, String(MAX_CONTEXT)), '--json', 'word '.repeat(MAX_CONTEXT)]);
    expect(JSON.parse(most.stdout).error).toMatchObject({
      code: 'CONTEXT_EXCEEDED',
      hint: 'shorten the prompt; this model takes no larger context',
    });
  });

  test('a budget that cannot be kept tells the smallest one', () => {
    const { status, stdout } = coli(['run', '--model', MODEL, '--ram', '1M', '--json', 'hi']);
    expect(status).toBe(1);
    expect(JSON.parse(stdout).error.message + JSON.parse(stdout).error.hint).toMatch(/\d+(\.\d+)? ?[MG]/);
  });

  test('a full disk behind stdout', () => {
    const full = openSync('/dev/full', 'w');
    const { status, stderr } = coli(['run', ...ENGINE, '--quiet', '--max-tokens', '5', '--ignore-eos', 'hi'], {
      stdout: full,
    });
    expect(status).toBe(1);
    expect(stderr).toMatch(/^coli: cannot write to standard output: .*ENOSPC.*\n$/);
  });
});

describe('leaving early', () => {
  test('Ctrl-C stops the answer with exit code 130 and keeps what came', async () => {
    const child = spawn(process.execPath, ['bin/coli.js', 'run', ...ENGINE.with(5, '4096'), ...LONG, 'hi'], {
      env: environment(),
    });
    let stdout = '';
    let stderr = '';
    child.stderr.on('data', data => (stderr += data));
    child.stdout.on('data', data => {
      if (stdout === '') child.kill('SIGINT');
      stdout += data;
    });
    expect(await new Promise(resolve => child.once('close', resolve))).toBe(130);
    expect(stdout).toMatch(/.\n$/s);
    expect(stderr).toContain('stopped');
  });

  test('a reader that goes away ends it quietly', async () => {
    const child = spawn(process.execPath, ['bin/coli.js', 'run', ...ENGINE.with(5, '4096'), ...LONG, 'hi'], {
      env: environment(),
    });
    let stderr = '';
    child.stderr.on('data', data => (stderr += data));
    child.stdout.once('data', () => child.stdout.destroy());
    expect(await new Promise(resolve => child.once('close', resolve))).toBe(0);
    expect(stderr).not.toMatch(/EPIPE|Error|coli:/);
  });
});

describe('chat from a pipe', () => {
  const args = ['chat', ...ENGINE, '--temperature', '0', '--max-tokens', '6', '--ignore-eos'];

  test('every line is a turn, with banner, ready line and footers on stderr', () => {
    const { status, stdout, stderr } = coli(args, { input: 'one\ntwo\n:stats\n:quit\nnever\n' });
    expect(status).toBe(0);
    expect(stdout).not.toBe('');
    expect(stderr).toMatch(/^colibri \d+\.\d+\.\d+: olmoe \(olmoe, /m);
    expect(stderr).toMatch(/^ready in [\d.]+ s, [\d.]+ .B in memory/m);
    expect(stderr.match(/^\[6 tokens, .*\]$/gm)).toHaveLength(2);
    expect(stderr).toMatch(/^sampling +temperature 0/m);
    expect(stderr).not.toContain('\x1b');
  });

  test('exact activations are said when it starts', () => {
    const { stderr } = coli([...args, '--activations', 'exact'], { input: 'one\n' });
    expect(stderr).toMatch(/^ready in .* in memory, exact activations; /m);
  });

  test('a model without a chat template is refused at the start', () => {
    const model = path.join(folder, 'no-template');
    cpSync(MODEL, model, { recursive: true });
    const file = path.join(model, 'tokenizer_config.json');
    const { chat_template: _, ...config } = JSON.parse(readFileSync(file, 'utf8'));
    writeFileSync(file, JSON.stringify(config));
    const { status, stdout, stderr } = coli(['chat', '--model', model, ...ENGINE.slice(2)], { input: ':quit\n' });
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr).toMatch(/^coli: this model has no chat template; .*run --raw\n$/m);
  });

  test('a command that does not exist is not sent, and is a failure in a script', () => {
    const { status, stdout, stderr } = coli(args, { input: ':undo 2\n' });
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' });
    expect(stderr).toContain(':undo takes nothing after it; nothing was sent');
  });

  test('a turn that does not fit is refused with the numbers, and :undo makes room', () => {
    const input = `one\n${'long '.repeat(300)}\n:undo\ntwo\n`;
    const { status, stderr } = coli(args, { input });
    expect(status).toBe(1);
    expect(stderr).toMatch(/^coli: this does not fit: .* has \d+ tokens, and the context of 256 .*:undo.*:reset/m);
    expect(stderr.match(/^\[6 tokens/gm)).toHaveLength(2);
  });
});

test('info tells shapes, sizes and the plan, as text and as JSON', () => {
  const { status, stdout } = coli(['info', ...ENGINE]);
  expect(status).toBe(0);
  expect(stdout).toMatch(/^family +olmoe/m);
  const json = JSON.parse(coli(['info', ...ENGINE, '--json']).stdout);
  expect(json).toMatchObject({ model: MODEL, family: 'olmoe', context: 256, compute: { threads: 2 } });
  expect(json.plan.total_bytes).toBeLessThanOrEqual(json.plan.budget_bytes);
  expect(json.plan.budget_bytes).toBe(1024 ** 3);
});

describe('eval', () => {
  test('oracle compares with the pack', () => {
    const args = ['eval', 'oracle', MODEL, '--activations', 'exact', '--ram', '1G'];
    const { status, stdout } = coli([...args, '--json']);
    expect(JSON.parse(stdout)).toMatchObject({ passed: true, router_mismatches: 0, first_difference: null });
    expect(status).toBe(0);
    expect(coli(args).stdout).toMatch(/^result +same as the reference$/m);
  });

  test('ppl is a number, the same whatever the number of slots', () => {
    const text = path.join(folder, 'text.txt');
    writeFileSync(text, 'The quick brown fox jumps over the lazy dog. '.repeat(10));
    const ppl = (...extra: string[]) =>
      JSON.parse(coli(['eval', 'ppl', ...ENGINE, '--json', '--text', text, ...extra]).stdout);
    const all = ppl();
    expect(all.ppl).toBeGreaterThan(1);
    expect(ppl('--expert-slots', '4').ppl).toBe(all.ppl);
    expect(coli(['eval', 'ppl', ...ENGINE, '--text', path.join(folder, 'none')]).status).toBe(1);
  });
});

describe('convert', () => {
  test('shows the plan, writes nothing in a dry run, then a model that runs', () => {
    const destination = path.join(folder, 'q8');
    const args = ['convert', MODEL, destination, '--experts', 'q8', '--dense', 'bf16'];
    const dry = coli([...args, '--dry-run']);
    expect(dry.status).toBe(0);
    expect(dry.stdout).toMatch(/^experts .*-> q8g64 .* [\d.]+ bits\/weight/m);
    expect(coli(['info', '--model', destination]).status).toBe(1);

    expect(coli(args)).toMatchObject({ status: 0, stderr: '' });
    const { stdout } = coli([
      'run',
      '--model',
      destination,
      '--ram',
      '1G',
      '--json',
      '--max-tokens',
      '3',
      '--verify',
      'hi',
    ]);
    expect(JSON.parse(stdout).token_ids.length).toBeGreaterThan(0);
    const again = coli([...args, '--json']);
    expect(again.status).toBe(1);
    expect(JSON.parse(again.stdout).error.code).toMatch(/^[A-Z_]+$/);
  });
});
