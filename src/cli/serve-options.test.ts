import { Command } from 'commander';
import { afterEach, expect, test } from 'vitest';
import type { EngineInfo } from '../engine/api.ts';
import { addFlags } from './options.ts';
import { checkServeFlags, portInUse, SERVE_FLAGS, type ServeFlags, serverSettings } from './serve-options.ts';
import { listeningLine, readyLine } from './serve-report.ts';

function parse(...args: string[]): ServeFlags {
  const command = addFlags(new Command().exitOverride().configureOutput({ writeErr: () => {} }), SERVE_FLAGS);
  return command.parse(args, { from: 'user' }).opts();
}

const settings = (...args: string[]) => serverSettings(parse(...args), 'nano', '1');

afterEach(() => {
  delete process.env['COLI_API_KEY'];
});

test('without flags: this machine only, no key, comments on', () => {
  expect(settings()).toMatchObject({
    host: '127.0.0.1',
    port: 8080,
    modelId: 'nano',
    modelAliases: [],
    apiKey: null,
    corsOrigins: [],
    slots: 1,
    maxQueue: 64,
    queueTimeoutMs: 600_000,
    graceMs: 30_000,
    keepaliveComments: true,
    logPrompts: false,
    insecure: false,
  });
});

test('every flag has its setting', () => {
  const given = settings(
    ...[
      '--host',
      '::1',
      '--port',
      '0',
      '--model-id',
      'm',
      '--model-id',
      'n',
      '--api-key',
      'k',
      '--slots',
      '3',
      '--max-queue',
      '0',
    ],
    ...['--cors-origin', 'http://a', '--cors-origin', 'http://b', '--allowed-host', 'x', '--insecure'],
    ...['--queue-timeout', '1.5', '--grace', '0', '--log-prompts', '--no-keepalive-comments'],
  );
  expect(given).toMatchObject({
    host: '::1',
    port: 0,
    modelId: 'm',
    modelAliases: ['n'],
    apiKey: 'k',
    corsOrigins: ['http://a', 'http://b'],
    allowedHosts: ['x'],
    insecure: true,
    slots: 3,
    maxQueue: 0,
    queueTimeoutMs: 1500,
    graceMs: 0,
    logPrompts: true,
    keepaliveComments: false,
  });
});

test('the key may come from the environment', () => {
  process.env['COLI_API_KEY'] = 'from-env';
  expect(settings().apiKey).toBe('from-env');
  process.env['COLI_API_KEY'] = '';
  expect(() => settings()).toThrow('--api-key (or COLI_API_KEY) is empty');
});

test.each([
  ['--port', '-1'],
  ['--port', '1.5'],
  ['--port', 'http'],
  ['--slots', '0'],
  ['--max-queue', '1.5'],
  ['--queue-timeout', 'NaN'],
  ['--grace', '1e9'],
  ['--kv-dir-size', 'much'],
  ['--model-id', ''],
])('%s %j is refused by name', (flag, value) => {
  expect(() => parse(`${flag}=${value}`)).toThrow(expect.objectContaining({ message: expect.stringContaining(flag) }));
});

test('what it tells: where, for whom, and what changes the numbers', () => {
  const line = listeningLine(settings(), ['http://127.0.0.1:1']);
  expect(line).toBe('Listening on http://127.0.0.1:1 (this machine only, no API key); loading nano ...');
  const open = listeningLine(settings('--host', '0.0.0.0', '--api-key', 'secret'), ['http://0.0.0.0:1']);
  expect(open).toContain('other machines too, API key required');
  expect(open).not.toContain('secret');
  const info = { context: 9, slots: 2, kv: 'bf16', kernels: 'wasm', plan: { total: 1000 } } as unknown as EngineInfo;
  expect(readyLine(settings(), info)).toBe(
    'Ready: nano, context 9 tokens, 2 slots, kv bf16, queue 64, wasm kernels, at most 1.00 kB.',
  );
});

test('a flag that would do nothing is refused', () => {
  const check = (...args: string[]) => checkServeFlags(parse(...args));
  expect(() => check('--kv-dir-size', '1G')).toThrow('--kv-dir-size is about --kv-dir');
  expect(() => check('--kv-dir-size', '1G', '--kv-dir', 'x')).not.toThrow();
  expect(() => check('--log-prompts', '--log-level', 'warn')).toThrow('--log-level warn leaves out');
  for (const level of ['info', 'debug']) expect(() => check('--log-prompts', '--log-level', level)).not.toThrow();
  expect(() => check('--log-prompts')).not.toThrow();
});

test('coli stop takes the port of a server, and speaks of nothing else', () => {
  expect(portInUse('8080')).toBe(8080);
  for (const text of ['0', 'x', '65536', '-1', '1.5', '']) {
    expect(() => portInUse(text)).toThrow(
      expect.objectContaining({
        message: expect.not.stringContaining('any free'),
        hint: expect.stringContaining('one'),
      }),
    );
  }
});
