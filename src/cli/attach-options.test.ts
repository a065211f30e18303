import { Command } from 'commander';
import { describe, expect, onTestFinished, test } from 'vitest';
import { addAttachFlags, checkAttachFlags, parseAttach } from './attach-options.ts';
import { addEngineFlags, addSamplingFlags } from './options.ts';

function parse(...args: string[]) {
  const command = addSamplingFlags(addEngineFlags(addAttachFlags(new Command('x').exitOverride())));
  command.configureOutput({ writeErr: () => {} }).parse(args, { from: 'user' });
  checkAttachFlags(command);
  return command.opts();
}

const usage = (message: string) =>
  expect.objectContaining({ name: 'UsageError', code: 'BAD_FLAG', message: expect.stringContaining(message) });

test.each([
  ['http://127.0.0.1:8080', 'http://127.0.0.1:8080'],
  ['http://127.0.0.1:8080/', 'http://127.0.0.1:8080'],
  ['http://127.0.0.1:8080/v1', 'http://127.0.0.1:8080'],
  ['https://Box.example/colibri/v1/', 'https://box.example/colibri'],
  ['http://[::1]:80/v1', 'http://[::1]'],
  ['http://box/v12', 'http://box/v12'],
  ['8080', 8080],
])('%s', (text, base) => {
  expect(parseAttach(text)).toBe(base);
});

test.each([
  '',
  'localhost:8080',
  'ftp://box',
  'box',
  '0',
  '65536',
  'http://',
  'http://u:p@box',
  'http://box?x=1',
  'http://box#x',
])('%j is no server', text => {
  expect(() => parse('--attach', text)).toThrow(usage('--attach'));
});

describe('flags that would do nothing', () => {
  const at = ['--attach', '8080'];

  test('engine flags beside --attach are named', () => {
    expect(() => parse(...at, '--ram', '4G', '--threads', '2', '--verify')).toThrow(
      usage('--ram, --threads, --verify'),
    );
    expect(() => parse(...at, '--model', 'x')).toThrow(usage('--model cannot be used'));
  });

  test('COLI_MODEL is for other commands and does not count', () => {
    const before = process.env['COLI_MODEL'];
    process.env['COLI_MODEL'] = 'x';
    onTestFinished(() => {
      if (before === undefined) delete process.env['COLI_MODEL'];
      else process.env['COLI_MODEL'] = before;
    });
    expect(parse(...at).attach).toBe(8080);
  });

  test('--ignore-eos, which servers do not offer', () => {
    expect(() => parse(...at, '--ignore-eos')).toThrow(usage('--ignore-eos'));
  });

  test('a key without a server', () => {
    expect(() => parse('--api-key', 'k')).toThrow(usage('--api-key'));
    expect(parse(...at, '--api-key', 'k')).toMatchObject({ attach: 8080, apiKey: 'k' });
  });

  test('without --attach all is as it was', () => {
    expect(parse('--ram', '4G', '--ignore-eos')).toMatchObject({ ignoreEos: true });
  });

  test.each(['', 'a b', 'é', 'a\nb'])('the key %j', key => {
    expect(() => parse(...at, '--api-key', key)).toThrow(usage('API key'));
  });
});
