import { PassThrough } from 'node:stream';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { openLineInput } from './line-input.ts';

const UP = '\x1b[A';

function setUp(isTTY: boolean) {
  const streamOf = () => Object.assign(new PassThrough(), { isTTY, columns: 80, setRawMode: () => {} });
  const input = streamOf();
  const output = streamOf();
  let interrupts = 0;
  const lines = openLineInput(
    input as unknown as NodeJS.ReadStream,
    output as unknown as NodeJS.WriteStream,
    () => interrupts++,
  );
  const type = async (text: string) => {
    input.write(text);
    await nextTurn();
  };
  const screen = () => String(output.read() ?? '');
  return { input, lines, type, screen, interrupts: () => interrupts };
}

test('from a pipe every line is one message, and the end is null', async () => {
  const { input, lines, screen } = setUp(false);
  expect(lines.interactive).toBe(false);
  input.end('one\ntwo');
  expect(await lines.next()).toBe('one');
  expect(await lines.next()).toBe('two');
  expect(await lines.next()).toBeNull();
  expect(screen()).toBe('');
});

test('a pasted text of several lines is one message; typing may go on behind it', async () => {
  const { lines, type } = setUp(true);
  const message = lines.next();
  await type('say: \x1b[200~first\rsecond\r\rlast\x1b[201~');
  await type('!\r');
  expect(await message).toBe('say: first\nsecond\n\nlast!');
  const next = lines.next();
  await type('plain\r');
  expect(await next).toBe('plain');
  lines.close();
});

test('arrow up brings back the last message, a pasted one in one piece', async () => {
  const { lines, type } = setUp(true);
  const first = lines.next();
  await type('older\r');
  await first;
  const second = lines.next();
  await type('\x1b[200~a\rb\rc\x1b[201~\r');
  expect(await second).toBe('a\nb\nc');
  for (let times = 0; times < 3; times++) {
    const again = lines.next();
    await type(`${UP}\r`);
    expect(await again).toBe('a\nb\nc');
  }
  // Arrow up goes through the three lines of the last message before it comes to the one before.
  const oldest = lines.next();
  await type(`${UP.repeat(4)}\r`);
  expect(await oldest).toBe('older');
  lines.close();
});

test('messages typed while an answer is written wait for their turn', async () => {
  const { lines, type } = setUp(true);
  await type('one\rtwo\r');
  expect([await lines.next(), await lines.next()]).toEqual(['one', 'two']);
  lines.close();
});

test('Ctrl-C is told, and drops what was typed', async () => {
  const { lines, type, interrupts } = setUp(true);
  const message = lines.next();
  await type('half a tho\x03');
  expect(interrupts()).toBe(1);
  expect(lines.dropTyped()).toBe(true);
  expect(lines.dropTyped()).toBe(false);
  await type('new\r');
  expect(await message).toBe('new');
  lines.close();
});

test('Ctrl-D on an empty line is the end, and the line ends too', async () => {
  const { lines, type, screen } = setUp(true);
  const message = lines.next();
  screen();
  await type('\x04');
  expect(await message).toBeNull();
  expect(screen()).toMatch(/\n$/);
});

test('leaving on a line of its own adds no empty one; leaving at the prompt ends its line', async () => {
  const { lines, type, screen } = setUp(true);
  const message = lines.next();
  expect(lines.prompting).toBe(true);
  await type(':quit\r');
  await message;
  expect(lines.prompting).toBe(false);
  screen();
  lines.close();
  expect(screen()).not.toContain('\n');

  const second = setUp(true);
  second.lines.next();
  second.screen();
  second.lines.close();
  expect(second.screen()).toMatch(/\n/);
});

test('bracketed paste is asked for on a terminal only, and given back', async () => {
  const terminal = setUp(true);
  expect(terminal.screen()).toContain('\x1b[?2004h');
  terminal.lines.close();
  expect(terminal.screen()).toContain('\x1b[?2004l');
});
