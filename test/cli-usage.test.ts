import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';

const { version } = JSON.parse(readFileSync('package.json', 'utf8'));

function coli(...args: string[]) {
  const env: NodeJS.ProcessEnv = { ...process.env, NO_COLOR: '1' };
  delete env['COLI_MODEL'];
  delete env['COLI_DEBUG'];
  delete env['FORCE_COLOR'];
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
  for (const command of ['run', 'chat', 'info', 'eval', 'convert']) expect(help.stdout).toContain(`\n  ${command} `);
  expect(coli('run', '--help').stdout).toContain('--expert-slots <n>');
});

describe('a wrong command line is exit code 2 and one line with the cause and a next step', () => {
  test.each([
    ['an unknown command', ['rnu'], "unknown command 'rnu'; did you mean run?"],
    ['an unknown flag', ['run', '--modle', 'x', 'hi'], "unknown option '--modle'; did you mean --model?"],
    ['a value that is no number', ['run', '--top-k', 'many', 'hi'], '--top-k must be a whole number'],
    ['a negative temperature', ['run', '--temperature', '-1', 'hi'], '--temperature must be a number from 0'],
    ['unknown kernels', ['run', '--kernels', 'fast', 'hi'], 'Allowed choices are auto, reference'],
    ['no prompt', ['run'], 'the prompt is empty'],
    ['--raw with --system', ['run', '--raw', '--system', 'x', 'hi'], 'cannot have a --system message'],
    ['no text for ppl', ['eval', 'ppl'], "required option '--text <file>' not specified"],
    ['no directory for oracle', ['eval', 'oracle'], "missing required argument 'dir'"],
    ['one directory for convert', ['convert', 'a'], "missing required argument 'destination'"],
    ['no command', [], 'there is no command'],
  ])('%s', (_, args, message) => {
    const { status, stdout, stderr } = coli(...args);
    expect(status).toBe(2);
    expect(stdout).toBe('');
    expect(stderr).toMatch(/^coli: [^\n]+; [^\n]+\n$/);
    expect(stderr).toContain(message);
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
