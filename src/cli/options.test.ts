import { Command } from 'commander';
import { describe, expect, test } from 'vitest';
import { flagNotes } from './model.ts';
import { addEngineFlags, addSamplingFlags, engineOptions, generateOptions } from './options.ts';
import { buildProgram, runProgram } from './program.ts';

function parse(...args: string[]) {
  const command = addSamplingFlags(
    addEngineFlags(new Command('x').exitOverride().configureOutput({ writeErr: () => {} })),
  );
  command.parse(args, { from: 'user' });
  return command.opts();
}

test('every flag of run reaches the engine', () => {
  const flags = parse(
    ...'--model m --ram 400M --threads 2 --ctx 300 --kernels wasm --expert-slots 8 --activations exact --verify'.split(
      ' ',
    ),
    ...'--max-tokens 0 --temperature 0.5 --top-p .9 --top-k 40 --min-p 0.1 --seed 9007199254740991'.split(' '),
    ...'--repetition-penalty 1.1 --presence-penalty -1 --frequency-penalty 1e-1 --ignore-eos'.split(' '),
    '--stop',
    'a',
    '--stop',
    'b c',
  );
  expect(engineOptions(flags, 'm')).toEqual({
    model: 'm',
    // of the environment that tests run in
    usage: process.env['COLI_USAGE'],
    ram: 400 * 1024 ** 2,
    threads: 2,
    context: 300,
    kernels: 'wasm',
    expertSlots: 8,
    activations: 'exact',
    verify: true,
  });
  expect(generateOptions(flags)).toEqual({
    maxTokens: 0,
    temperature: 0.5,
    topP: 0.9,
    topK: 40,
    minP: 0.1,
    seed: 9007199254740991,
    repetitionPenalty: 1.1,
    presencePenalty: -1,
    frequencyPenalty: 0.1,
    stop: ['a', 'b c'],
    ignoreEos: true,
  });
});

test('sizes are powers of 1024, and auto is a word', () => {
  expect(parse('--ram', '24G').ram).toBe(24 * 1024 ** 3);
  expect(parse('--ram', 'auto').ram).toBe('auto');
  expect(parse().ram).toBeUndefined();
});

describe('a wrong value names its flag', () => {
  test.each([
    ['--temperature', 'hot'],
    ['--temperature', '-1'],
    ['--temperature', ''],
    ['--temperature', 'NaN'],
    ['--temperature', '0x1'],
    ['--temperature', 'Infinity'],
    ['--top-p', '0'],
    ['--top-k', '1.5'],
    ['--top-k', '-1'],
    ['--min-p', '2'],
    ['--seed', '9007199254740992'],
    ['--max-tokens', '-1'],
    ['--threads', '0'],
    ['--threads', '257'],
    ['--repetition-penalty', '5e-324'],
    ['--stop', 'x'.repeat(1025)],
    ['--ctx', '4k'],
    ['--expert-slots', 'all'],
    ['--model', ''],
    ['--stop', ''],
  ])('%s %j', (flag, value) => {
    const error = expect.objectContaining({
      name: 'UsageError',
      code: 'BAD_FLAG',
      message: expect.stringContaining(flag),
    });
    expect(() => parse(flag, value)).toThrow(error);
  });

  test('as many --stop as a request may have, no more', () => {
    const many = (n: number) => Array.from({ length: n }, (_, i) => ['--stop', `s${i}`]).flat();
    expect(parse(...many(16)).stop).toHaveLength(16);
    expect(() => parse(...many(17))).toThrow(
      expect.objectContaining({ name: 'UsageError', code: 'BAD_FLAG', message: '--stop has 17 strings, at most 16' }),
    );
  });

  test.each(['12X', ''])('--ram %j', value => {
    const message = expect.stringContaining('--ram: ');
    expect(() => parse('--ram', value)).toThrow(expect.objectContaining({ code: 'BAD_SIZE', message }));
  });
});

test('every command has the flags that it is documented with', () => {
  const engine = ['--model', '--ram', '--threads', '--ctx', '--kernels', '--expert-slots', '--activations', '--verify'];
  const sampling = [
    '--max-tokens',
    '--temperature',
    '--top-p',
    '--top-k',
    '--min-p',
    '--seed',
    '--stop',
    '--system',
    '--ignore-eos',
  ];
  const program = buildProgram(() => {});
  const flagsOf = (...names: string[]) => {
    let command: Command | undefined = program;
    for (const name of names) command = command?.commands.find(c => c.name() === name);
    return command?.options.map(option => option.long);
  };
  expect(flagsOf('run')).toEqual(expect.arrayContaining([...engine, ...sampling, '--raw', '--json', '--quiet']));
  expect(flagsOf('chat')).toEqual(expect.arrayContaining([...engine, ...sampling]));
  expect(flagsOf('info')).toEqual(expect.arrayContaining([...engine, '--json']));
  expect(flagsOf('eval', 'oracle')).toEqual(expect.arrayContaining([...engine.slice(1), '--json']));
  expect(flagsOf('eval', 'oracle')).not.toContain('--model');
  expect(flagsOf('eval', 'ppl')).toEqual(expect.arrayContaining([...engine, '--json', '--text']));
  const server = [
    '--host',
    '--port',
    '--api-key',
    '--slots',
    '--max-queue',
    '--queue-timeout',
    '--kv',
    '--kv-dir',
    '--grace',
  ];
  expect(flagsOf('serve')).toEqual(expect.arrayContaining([...engine, ...server, '--no-keepalive-comments']));
  expect(flagsOf('stop')).toEqual(['--port']);
  expect(flagsOf('convert')).toEqual(expect.arrayContaining(['--experts', '--dense', '--dry-run']));
});

test('more threads or memory than the machine has is told', () => {
  expect(flagNotes({ threads: 4, ram: 8e9 }, 4, 8e9)).toEqual([]);
  expect(flagNotes({ ram: 'auto' }, 4, 8e9)).toEqual([]);
  expect(flagNotes({ threads: 5, ram: 9e9 }, 4, 8e9)).toEqual([
    '--threads 5 is more than this machine has (4); they wait for each other',
    '--ram 9.00 GB is more than this machine has (8.00 GB); it may swap or be stopped',
  ]);
});

test.each([
  [['run', '--temprature-of-all', '1'], 'see coli run --help'],
  [['eval', 'ppl', '--nothing-like-it'], 'see coli eval ppl --help'],
  [['--nothing-like-it'], 'see coli --help'],
])('%j: a wrong flag points at the help of its command', async (args, hint) => {
  await expect(runProgram(args)).rejects.toMatchObject({ code: 'BAD_USAGE', hint });
});

test('commands that only look at a model do not offer what would change nothing', () => {
  const offers = (name: string, flag: string) => {
    const command = buildProgram(() => {}).commands.find(each => each.name() === name)!;
    return command.options.some(({ long }) => long === flag);
  };
  for (const name of ['plan', 'info', 'doctor']) expect([name, offers(name, '--trace')]).toEqual([name, false]);
  for (const flag of ['--prefetch', '--verify']) expect(offers('plan', flag)).toBe(false);
  for (const flag of ['--policy', '--ram', '--model', '--io']) expect(offers('plan', flag)).toBe(true);
  expect(offers('run', '--trace')).toBe(true);
});

test('--measure and --no-measure are not both obeyed', async () => {
  for (const flags of [
    ['--measure', '--no-measure'],
    ['--no-measure', '--measure'],
  ]) {
    await expect(runProgram(['plan', '--model', '/no/such/model', ...flags])).rejects.toThrow(/contradict each other/);
  }
  await expect(runProgram(['plan', '--model', '/no/such/model', '--no-measure'])).rejects.toThrow(/no\/such/);
});

test('an example of a flag is a value worth giving', () => {
  for (const [flag, example] of [
    ['--chunk', 128],
    ['--ctx', 4096],
    ['--threads', 4],
  ]) {
    expect(() => parse(String(flag), '0')).toThrow(
      expect.objectContaining({ hint: `write ${flag} ${example}, for example` }),
    );
  }
});
