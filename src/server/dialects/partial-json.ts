/** JSON that ends early, as the arguments of a call do when an answer reaches its length. */

/** The object that `text` is, or, if it is cut off, the part of it whose values are complete; {} if there is none. */
export function parsePartialObject(text: string): Record<string, unknown> {
  const whole = parseObject(text);
  if (whole !== null) return whole;
  const { end, closers } = lastCompleteValue(text);
  return parseObject(text.slice(0, end) + closers) ?? {};
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}

const TOKEN = /[{}[\],:]|"(?:[^"\\]|\\.)*"|[^\s{}[\],:"]+(?=[\s,}\]])/gy;

/** Where the text can be cut so that closing what is open makes it whole. */
function lastCompleteValue(text: string): { end: number; closers: string } {
  let best = { end: 0, closers: '' };
  let closers = '';
  let isKey = false;
  TOKEN.lastIndex = 0;
  for (let at = skipSpace(text, 0); ; at = skipSpace(text, TOKEN.lastIndex)) {
    TOKEN.lastIndex = at;
    const token = TOKEN.exec(text)?.[0];
    if (token === undefined) return best;
    if (token === '{' || token === '[') closers = (token === '{' ? '}' : ']') + closers;
    else if (token === '}' || token === ']') closers = closers.slice(1);
    if (token === ',' || token === ':' || isKey) {
      isKey = token === ',' && closers[0] === '}';
      continue;
    }
    isKey = token === '{';
    best = { end: TOKEN.lastIndex, closers };
  }
}

function skipSpace(text: string, at: number): number {
  while (at < text.length && ' \t\r\n'.includes(text[at])) at++;
  return at;
}
