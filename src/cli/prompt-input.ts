/** The prompt of `run`: words of the command line, or standard input. */

import { RequestError, UsageError } from '../common/errors.ts';
import { note } from './output.ts';
import { isTerminal } from './terminal.ts';

/** A million tokens of English; more would be copied a few times, outside the plan, before the context check refuses it. */
export const MAX_PROMPT_BYTES = 4 * 1024 * 1024;

/**
 * `-` alone, or no words while something is piped in, reads standard input. With words it is not read: a pipe may never
 * end, and scripts often run with one that nobody writes to. For a chat message (not `raw`) the line feed that
 * ends the input is dropped, as `echo` adds one.
 */
export async function readPrompt(
  words: readonly string[],
  raw: boolean,
  stdin: NodeJS.ReadStream | AsyncIterable<Buffer> = process.stdin,
  quiet = false,
): Promise<string> {
  if (words[0] === '-' && words.length > 1) {
    throw new UsageError('BAD_PROMPT', 'the prompt is either - for standard input or words, not both', {
      hint: 'leave one of them out; quote a prompt that begins with a dash: "- like this"',
    });
  }
  const piped = words.length === 0 ? !isTerminal(stdin as NodeJS.ReadStream) : words.length === 1 && words[0] === '-';
  if (!piped && words.length === 0) {
    throw new UsageError('NO_PROMPT', 'there is no prompt', { hint: 'write one after coli run, or pipe it in' });
  }
  if (piped && isTerminal(stdin as NodeJS.ReadStream)) {
    note('Reading the prompt from the terminal; Ctrl-D on a line of its own ends it.', quiet);
  }
  const text = piped ? decodeUtf8(await readAll(stdin as AsyncIterable<Buffer>), 'standard input') : words.join(' ');
  const prompt = piped && !raw ? text.replace(/\r?\n$/, '') : text;
  if (prompt === '') {
    throw new UsageError('NO_PROMPT', 'the prompt is empty', { hint: 'write one after coli run, or pipe it in' });
  }
  return prompt;
}

async function readAll(stream: AsyncIterable<Buffer>): Promise<Buffer> {
  const parts: Buffer[] = [];
  let bytes = 0;
  for await (const part of stream) {
    parts.push(part);
    bytes += part.length;
    if (bytes <= MAX_PROMPT_BYTES) continue;
    throw new RequestError('PROMPT_TOO_LARGE', `standard input has more than ${MAX_PROMPT_BYTES} bytes`, {
      hint: 'shorten the prompt',
    });
  }
  return Buffer.concat(parts);
}

/** Strict: nothing is replaced silently. `source` names the text in the error. */
export function decodeUtf8(bytes: Buffer, source: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (cause) {
    throw new RequestError('BAD_UTF8', `${source} is not valid UTF-8`, {
      hint: 'convert it first, for example with iconv',
      cause,
    });
  }
}
