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

export type Style = 'dim' | 'bold' | 'red' | 'cyan';

/** Colour only where the stream is a terminal that wants it (NO_COLOR, NODE_DISABLE_COLORS, FORCE_COLOR). */
export function styled(style: Style, text: string, stream: NodeJS.WriteStream): string {
  return styleText(style, text, { stream, validateStream: true });
}
