/** The user's side of a chat: a line editor on a terminal, plain lines from a pipe or file. */

import readline from 'node:readline';
import { isTerminal } from './terminal.ts';

/** Terminals that understand these mark pasted text, so that its line breaks do not each send a message. */
const BRACKETED_PASTE_ON = '\x1b[?2004h';
const BRACKETED_PASTE_OFF = '\x1b[?2004l';
const PROMPT = '> ';

export interface LineInput {
  /** True when a person types; false for a pipe or file, where every line is one message. */
  readonly interactive: boolean;
  /** True while the prompt waits for the user to type. */
  readonly prompting: boolean;
  /** The next message, or null at the end of the input. */
  next(): Promise<string | null>;
  /** Ctrl-C at the prompt: drops what was typed; false when there was nothing. */
  dropTyped(): boolean;
  /** A line of ours while the user is at the prompt. */
  say(text: string): void;
  close(): void;
}

export function openLineInput(
  input: NodeJS.ReadStream,
  output: NodeJS.WriteStream,
  onInterrupt: () => void,
): LineInput {
  const interactive = isTerminal(input) && isTerminal(output);
  const editor = readline.createInterface({ input, output, terminal: interactive, prompt: PROMPT, historySize: 500 });
  const waiting: ((message: string | null) => void)[] = [];
  const queue: (string | null)[] = [];
  let pasting = false;
  let prompting = false;
  const showPrompt = () => {
    prompting = true;
    editor.prompt();
  };
  /** Lines of a paste that the message begins with. */
  let pasted: string[] = [];

  const deliver = (message: string | null) => {
    const taker = waiting.shift();
    if (taker) taker(message);
    else queue.push(message);
  };
  const onKey = (_: string | undefined, key: { name?: string } | undefined) => {
    if (key?.name === 'paste-start') pasting = true;
    if (key?.name === 'paste-end') pasting = false;
  };
  let history: string[] = [];
  editor.on('history', changed => {
    history = changed;
  });
  editor.on('line', line => {
    // A message of several lines that comes back from the history has carriage returns between them.
    pasted.push(line.replaceAll('\r', '\n'));
    if (pasting) return;
    prompting = false;
    const message = pasted.join('\n');
    // The editor has remembered each line by itself; the arrow key is to bring the message back whole.
    if (pasted.length > 1) history.splice(0, Math.min(pasted.length, history.length), message);
    pasted = [];
    deliver(message);
  });
  editor.on('close', () => {
    // The shell's prompt is not to stand behind ours.
    if (prompting) output.write('\n');
    prompting = false;
    if (pasted.length > 0) deliver(pasted.join('\n'));
    deliver(null);
  });
  editor.on('SIGINT', onInterrupt);
  if (interactive) {
    // Before the editor's own listener, so that a line break inside a paste is seen as one.
    input.prependListener('keypress', onKey);
    output.write(BRACKETED_PASTE_ON);
  }

  return {
    interactive,
    get prompting() {
      return prompting;
    },
    next() {
      if (queue.length > 0) return Promise.resolve(queue.shift() as string | null);
      if (interactive) showPrompt();
      return new Promise(resolve => waiting.push(resolve));
    },
    dropTyped() {
      if (editor.line === '' && pasted.length === 0) return false;
      pasted = [];
      output.write('\n');
      editor.write(null, { ctrl: true, name: 'e' });
      editor.write(null, { ctrl: true, name: 'u' });
      showPrompt();
      return true;
    },
    say(text) {
      output.write(`\n${text}\n`);
      showPrompt();
    },
    close() {
      if (interactive) {
        input.off('keypress', onKey);
        output.write(BRACKETED_PASTE_OFF);
      }
      editor.close();
    },
  };
}
