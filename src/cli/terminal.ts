/** Text on its way to a terminal. Model output and file names come from outside and must not drive it. */

import type { Writable } from 'node:stream';
import { styleText } from 'node:util';

// C0 (but tab and line feed), DEL and C1: cursor movement, colours, titles and clipboard writes all start with one.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it looks for
const CONTROLS_AND_BREAKS = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g;

/** Model output as a terminal may have it: tab and line feed are the only control characters left. */
export function stripControls(text: string): string {
  return text.replace(CONTROLS, '');
}

/** One line in which every control character is visible: "a\x1b[2J" for an escape sequence in a file name. */
export function escapeControls(text: string): string {
  return text.replace(CONTROLS_AND_BREAKS, char => {
    const code = char.charCodeAt(0);
    if (char === '\n') return '\\n';
    return code < 256 ? `\\x${code.toString(16).padStart(2, '0')}` : `\\u${code.toString(16)}`;
  });
}

export function isTerminal(stream: Writable | NodeJS.ReadStream): boolean {
  return (stream as { isTTY?: boolean }).isTTY === true;
}

/** Columns of the terminal behind `stream`, or null where lines are not to be broken: a file or a pipe. */
export function terminalWidth(stream: NodeJS.WriteStream): number | null {
  return isTerminal(stream) ? (stream.columns ?? DEFAULT_COLUMNS) : null;
}

/** Where a terminal does not say how wide it is. */
const DEFAULT_COLUMNS = 80;
/** A narrower terminal breaks lines by itself. */
const MIN_COLUMNS = 20;

/**
 * Breaks a line of ours between words; `width` null leaves it whole. Rows of a table (a name, two spaces, a value) go on
 * under their value, other lines are indented by two. A word longer than a line is left for the terminal to break.
 */
export function wrapLine(line: string, width: number | null): string {
  if (width === null || width < MIN_COLUMNS || line.length <= width) return line;
  const name = /^\s*\S+(?: \S+)* {2,}/.exec(line)?.[0].length ?? 0;
  const column = name <= width / 2 ? name : 0;
  const indent = ' '.repeat(column || 2);
  const lines: string[] = [];
  let current = line.slice(0, column);
  let words = 0;
  for (const word of line.slice(column).split(' ')) {
    if (words > 0 && current.length + 1 + word.length > width) {
      lines.push(current);
      current = indent;
      words = 0;
    }
    current += words > 0 ? ` ${word}` : word;
    words++;
  }
  return [...lines, current].join('\n');
}

export type Style = 'dim' | 'bold' | 'red' | 'cyan';

/** Colour only where the stream is a terminal that wants it (NO_COLOR, NODE_DISABLE_COLORS, FORCE_COLOR). */
export function styled(style: Style, text: string, stream: NodeJS.WriteStream): string {
  return styleText(style, text, { stream, validateStream: true });
}
