/** For tests of chat formats: answers through parsers, cut in any way. */

import type { ChatFormat, ChatPiece, ParserOptions, ToolDefinition } from './api.ts';

export const TOOLS: readonly ToolDefinition[] = [
  {
    name: 'get_weather',
    description: 'Weather of a city',
    parameters: {
      type: 'object',
      properties: { city: { type: 'string' }, days: { type: 'integer' }, detail: { type: ['string', 'null'] } },
      required: ['city'],
    },
  },
  { name: 'now', parameters: { type: 'object', properties: {} } },
  { name: 'now_utc' },
];

export interface Call {
  readonly name: string;
  readonly arguments: string;
}

/** What a client has at the end. */
export interface Parsed {
  readonly reasoning: string;
  readonly text: string;
  readonly calls: Call[];
}

export const OPTIONS: ParserOptions = { tools: TOOLS, toolChoice: 'auto', startsInReasoning: false };

/** Joins pieces; throws when they come in an order that a client could not follow. */
export function join(pieces: readonly ChatPiece[]): Parsed {
  let reasoning = '';
  let text = '';
  const calls: { name: string; arguments: string }[] = [];
  for (const piece of pieces) {
    if (piece.type === 'call') {
      if (piece.index !== calls.length) throw new Error(`call ${piece.index} comes after ${calls.length} calls`);
      calls.push({ name: piece.name, arguments: '' });
      continue;
    }
    if (piece.text === '') throw new Error(`an empty piece of ${piece.type}`);
    if (piece.type === 'text') text += piece.text;
    else if (piece.type === 'reasoning') {
      if (text !== '' || calls.length > 0) throw new Error('reasoning behind the answer');
      reasoning += piece.text;
    } else {
      if (piece.index !== calls.length - 1) throw new Error(`arguments of call ${piece.index} of ${calls.length}`);
      calls[piece.index].arguments += piece.text;
    }
  }
  return { reasoning, text, calls };
}

export interface ParseOptions extends Partial<ParserOptions> {
  /** The token limit ended the answer. */
  readonly cut?: boolean;
}

/** The pieces of an answer that comes in `parts`. */
export function piecesOf(format: ChatFormat, parts: readonly string[], options: ParseOptions = {}): ChatPiece[] {
  const parser = format.parser({ ...OPTIONS, ...options });
  const pieces = parts.flatMap(part => tokensOf(format, part).flatMap(([text, marker]) => parser.push(text, marker)));
  return [...pieces, ...parser.end(options.cut)];
}

export function parse(format: ChatFormat, answer: string, options: ParseOptions = {}): Parsed {
  return join(piecesOf(format, [withTokens(format, answer)], options));
}

/** In tests a marker is one private-use character, so that no cut goes through it. */
const FIRST_TOKEN = 0xe000;

/** An answer whose markers are tokens, as the engine tells them. */
export function withTokens({ markers }: ChatFormat, answer: string): string {
  return markers.reduce((text, marker, i) => text.replaceAll(marker, String.fromCharCode(FIRST_TOKEN + i)), answer);
}

/** Texts, each with the marker behind it. */
function tokensOf({ markers }: ChatFormat, part: string): [text: string, marker?: string][] {
  const pairs = [...part.matchAll(/([^\uE000-\uE0FF]*)([\uE000-\uE0FF]?)/g)];
  return pairs
    .filter(([whole]) => whole !== '' || part === '')
    .map(([, text, token]) => (token === '' ? [text] : [text, markers[token.charCodeAt(0) - FIRST_TOKEN]]));
}

/** Cuts at the given places (any numbers). */
export function cutAt(text: string, places: readonly number[]): string[] {
  const at = [0, ...places.map(place => place % (text.length + 1)).sort((a, b) => a - b), text.length];
  return at.slice(1).map((end, i) => text.slice(at[i], end));
}
