import { spawnSync } from 'node:child_process';
import { closeSync, openSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';

const { version } = JSON.parse(readFileSync('package.json', 'utf8'));

const coli = (...args: string[]) => coliWith({}, ...args);

function coliWith(extra: Record<string, string>, ...args: string[]) {
  const env: NodeJS.ProcessEnv = { ...process.env, ...extra, NO_COLOR: '1' };
  for (const name of ['COLI_MODEL', 'COLI_DEBUG', 'FORCE_COLOR']) if (!(name in extra)) delete env[name];
  const { status, stdout, stderr } = spawnSync(process.execPath, ['bin/coli.js', ...args], {
    encoding: 'utf8',
    input: '',
    env,
  });
  return { status, stdout, stderr };
}

test('--version and --help answer on stdout with exit code 0', () => {
  expect(coli('--version')).toEqual({ status: 0, stdout: `${version}\n`, stderr: '' });
  const help = coli('--help');
  expect(help).toMatchObject({ status: 0, stderr: '' });
  for (const command of ['run', 'chat', 'serve', 'stop', 'info', 'doctor', 'pull', 'list', 'rm', 'eval', 'convert'])
    expect(help.stdout).toContain(`\n  ${command} `);
  expect(coli('run', '--help').stdout).toContain('--expert-slots <n>');
  for (const command of [
    ['run'],
    ['chat'],
    ['serve'],
    ['stop'],
    ['info'],
    ['doctor'],
    ['pull'],
    ['list'],
    ['rm'],
    ['eval'],
    ['eval', 'ppl'],
    ['eval', 'oracle'],
    ['convert'],
  ]) {
    expect(coli(...command, '--help').stdout, command.join(' ')).toMatch(/Examples:\n {2}coli .*docs\/quickstart\.md/s);
  }
});

describe('a wrong command line is exit code 2 and one line with the cause and a next step', () => {
  test.each([
    ['an unknown command', ['rnu'], "unknown command 'rnu'; did you mean run?"],
    ['an unknown flag', ['run', '--modle', 'x', 'hi'], "unknown option '--modle'; did you mean --model?"],
    ['a value that is no number', ['run', '--top-k', 'many', 'hi'], '--top-k must be a whole number'],
    ['a negative temperature', ['run', '--temperature', '-1', 'hi'], '--temperature must be a number from 0'],
    ['unknown kernels', ['run', '--kernels', 'fast', 'hi'], 'Allowed choices are auto, native'],
    ['no prompt', ['run'], 'the prompt is empty'],
    ['--raw with --system', ['run', '--raw', '--system', 'x', 'hi'], 'cannot have a --system message'],
    ['no text for ppl', ['eval', 'ppl'], "required option '--text <file>' not specified"],
    ['no directory for oracle', ['eval', 'oracle'], "missing required argument 'dir'"],
    ['one directory for convert', ['convert', 'a'], "missing required argument 'destination'"],
    ['an empty model', ['run', '--model', '', 'hi'], '--model (or COLI_MODEL) is empty'],
    ['an empty stop string', ['run', '--stop', '', 'hi'], '--stop is empty'],
    ['a budget that is no size', ['run', '--ram', 'abc', 'hi'], '--ram: "abc" is not a size'],
    ['a port that is none', ['serve', '--port', '65536'], '--port must be a whole number from 0'],
    ['any origin', ['serve', '--cors-origin', '*'], '--cors-origin must be one origin'],
    ['an open bind', ['serve', '--host', '0.0.0.0'], 'no --api-key is set'],
    ['a key with a space', ['serve', '--api-key', 'a b'], '--api-key (or COLI_API_KEY)'],
    ['a grace that is no number', ['serve', '--grace', '-1'], '--grace must be seconds'],
    ['a dash and words', ['run', '-', 'hi'], 'either - for standard input or words'],
  ])('%s', (_, args, message) => {
    const { status, stdout, stderr } = coli(...args);
    expect(status).toBe(2);
    expect(stdout).toBe('');
    expect(stderr).toMatch(/^coli: [^\n]+; [^\n]+\n$/);
    expect(stderr).toContain(message);
  });

  test('an empty COLI_MODEL too; --model comes before it', () => {
    const { status, stderr } = coliWith({ COLI_MODEL: '' }, 'run', 'hi');
    expect({ status, stderr }).toMatchObject({ status: 2, stderr: expect.stringContaining('COLI_MODEL) is empty') });
    expect(coliWith({ COLI_MODEL: '' }, 'info', '--model', '/nowhere').status).toBe(1);
  });

  test.each([[[]], [['eval']]])('no command: the help on stderr (%j)', args => {
    const { status, stdout, stderr } = coli(...args);
    expect({ status, stdout }).toEqual({ status: 2, stdout: '' });
    expect(stderr).toMatch(/^Usage: coli /);
    expect(stderr).toMatch(/\nExamples:\n {2}coli /);
  });

  test('with --json the error is an object on stdout', () => {
    const { status, stdout, stderr } = coli('run', '--json', '--seed', '-1', 'hi');
    expect(status).toBe(2);
    expect(stderr).toBe('');
    expect(JSON.parse(stdout)).toEqual({
      error: { code: 'BAD_FLAG', message: expect.stringContaining('--seed'), hint: expect.any(String) },
    });
  });
});

test.each([
  ['the answer', ['info', '--json', '--model', 'models/nano']],
  ['an error', ['info', '--json', '--model', 'nowhere']],
])('--json on a full disk: %s is not lost without a word', (what, args) => {
  const full = openSync('/dev/full', 'w');
  const { status, stderr } = spawnSync(process.execPath, ['bin/coli.js', ...args], {
    encoding: 'utf8',
    stdio: ['ignore', full, 'pipe'],
  });
  closeSync(full);
  expect(status).toBe(1);
  expect(stderr).toMatch(/^coli: cannot write to standard output: .*ENOSPC/m);
  if (what === 'an error') expect(stderr).toMatch(/^coli: .*nowhere/m);
});
