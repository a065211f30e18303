/**
 * Splits text into the pieces that BPE may not merge across. Regular expressions are translated from Oniguruma by
 * @huggingface/tokenizers; the splitting rules are ours, because every behaviour of the original is needed.
 */

import { isJsonObject, jsonType } from '../formats/json.ts';
import { byteLevelText } from './byte-level.ts';
import { SplitPreTokenizer } from './hf-library.ts';
import { inexactRegexConstruct } from './regex-check.ts';
import { tokenizerFault } from './tokenizer-file.ts';

/** Where a piece of text stands: at the very start, after a control token, or right after other text it was cut from. */
export type Place = 'start' | 'section' | 'continuation';

export type PreTokenizer = (text: string, place: Place) => string[];

/** Sequences hold sequences; real ones are at most two deep. */
const MAX_SEQUENCE_DEPTH = 8;

const GPT2_PATTERN = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const PUNCTUATION = '[\\p{P}\\x21-\\x2F\\x3A-\\x40\\x5B-\\x60\\x7B-\\x7E]';

type Path = (string | number)[];
type Piece = { text: string; matched: boolean };

/** `config` is the `pre_tokenizer` of tokenizer.json; null means that the text is one piece. */
export function buildPreTokenizer(config: unknown, path: Path = ['pre_tokenizer'], depth = 0): PreTokenizer {
  if (config === null) return text => [text];
  if (!isJsonObject(config))
    throw tokenizerFault('TOKENIZER_INVALID', path, `must be an object, not ${jsonType(config)}`);
  switch (config.type) {
    case 'Sequence':
      return sequence(config.pretokenizers, [...path, 'pretokenizers'], depth);
    case 'ByteLevel':
      return byteLevel(config);
    case 'Metaspace':
      return metaspace(config, path);
    case 'Split':
      return split(config.pattern, config.behavior, config.invert === true, path);
    case 'Digits':
      return split({ Regex: '\\p{N}' }, config.individual_digits === true ? 'Isolated' : 'Contiguous', false, path);
    case 'Punctuation':
      return split({ Regex: PUNCTUATION }, config.behavior ?? 'Isolated', false, path);
    case 'Whitespace':
      return split({ Regex: '\\w+|[^\\w\\s]+' }, 'Removed', true, path);
    case 'WhitespaceSplit':
      return split({ Regex: '\\s' }, 'Removed', false, path);
    default:
      throw tokenizerFault(
        'TOKENIZER_UNSUPPORTED',
        [...path, 'type'],
        `is ${JSON.stringify(config.type)}, which is not supported`,
      );
  }
}

function sequence(steps: unknown, path: Path, depth: number): PreTokenizer {
  if (!Array.isArray(steps) || depth >= MAX_SEQUENCE_DEPTH) {
    throw tokenizerFault('TOKENIZER_INVALID', path, `must be an array nested at most ${MAX_SEQUENCE_DEPTH} deep`);
  }
  const built = steps.map((step, i) => buildPreTokenizer(step, [...path, i], depth + 1));
  return (text, place) => {
    let pieces = [text];
    for (const step of built) {
      pieces = pieces.flatMap((piece, i) => step(piece, i === 0 || place === 'continuation' ? place : 'section'));
    }
    return pieces;
  };
}

function byteLevel(config: Record<string, unknown>): PreTokenizer {
  const words = config.use_regex === false ? null : split({ Regex: GPT2_PATTERN }, 'Isolated', false, []);
  const prefix = config.add_prefix_space === true;
  return (text, place) => {
    const spaced = prefix && place !== 'continuation' && !text.startsWith(' ') ? ` ${text}` : text;
    return (words ? words(spaced, place) : [spaced]).map(byteLevelText);
  };
}

function metaspace(config: Record<string, unknown>, path: Path): PreTokenizer {
  const replacement = config.replacement ?? '▁';
  const scheme = config.prepend_scheme ?? (config.add_prefix_space === false ? 'never' : 'always');
  if (typeof replacement !== 'string' || !['always', 'first', 'never'].includes(scheme as string)) {
    throw tokenizerFault('TOKENIZER_INVALID', path, 'has a replacement or prepend_scheme that is not known');
  }
  const cut = config.split === false ? null : split({ String: replacement }, 'MergedWithNext', false, path);
  return (text, place) => {
    const replaced = text.replaceAll(' ', () => replacement);
    const prepend = place === 'start' ? scheme !== 'never' : place === 'section' && scheme === 'always';
    const whole = prepend && !replaced.startsWith(replacement) ? replacement + replaced : replaced;
    return cut ? cut(whole, place) : [whole];
  };
}

function split(pattern: unknown, behavior: unknown, invert: boolean, path: Path): PreTokenizer {
  const combine = BEHAVIOURS[String(behavior)];
  if (!combine) {
    throw tokenizerFault(
      'TOKENIZER_UNSUPPORTED',
      [...path, 'behavior'],
      `is ${JSON.stringify(behavior)}, which is not supported`,
    );
  }
  const regex = compile(pattern, path);
  return text => combine(cutByMatches(text, regex, invert)).filter(piece => piece !== '');
}

function compile(pattern: unknown, path: Path): RegExp {
  const source = isJsonObject(pattern) ? (pattern.Regex ?? pattern.String) : undefined;
  if (typeof source !== 'string' || source === '') {
    throw tokenizerFault('TOKENIZER_INVALID', [...path, 'pattern'], 'must have a Regex or a String');
  }
  const inexact = isJsonObject(pattern) && pattern.Regex !== undefined ? inexactRegexConstruct(source) : null;
  if (inexact)
    throw tokenizerFault('TOKENIZER_UNSUPPORTED', [...path, 'pattern'], `has ${inexact}, which is not supported`);
  try {
    const regex = new SplitPreTokenizer({ type: 'Split', pattern, behavior: 'Isolated', invert: false }).pattern;
    if (regex) return regex;
  } catch (error) {
    const what = `cannot be translated: ${(error as Error).message}`;
    throw tokenizerFault('TOKENIZER_UNSUPPORTED', [...path, 'pattern'], what);
  }
  throw tokenizerFault('TOKENIZER_INVALID', [...path, 'pattern'], 'is neither a Regex nor a String');
}

/** Matches and the gaps between them, in order. */
function cutByMatches(text: string, regex: RegExp, invert: boolean): Piece[] {
  const pieces: Piece[] = [];
  let done = 0;
  for (const match of text.matchAll(regex)) {
    if (match.index > done) pieces.push({ text: text.slice(done, match.index), matched: invert });
    if (match[0] !== '') pieces.push({ text: match[0], matched: !invert });
    done = match.index + match[0].length;
  }
  if (done < text.length) pieces.push({ text: text.slice(done), matched: invert });
  return pieces;
}

const BEHAVIOURS: Readonly<Record<string, (pieces: Piece[]) => string[]>> = {
  Isolated: pieces => pieces.map(piece => piece.text),
  Removed: pieces => pieces.filter(piece => !piece.matched).map(piece => piece.text),
  Contiguous: pieces => join(pieces, (piece, previous) => piece.matched === previous.matched),
  MergedWithPrevious: pieces => join(pieces, (piece, previous) => piece.matched && !previous.matched),
  MergedWithNext: pieces => join(pieces, (piece, previous) => previous.matched && !piece.matched),
};

/** Joins a piece to the text before it where `belongs` says so. */
function join(pieces: Piece[], belongs: (piece: Piece, previous: Piece) => boolean): string[] {
  const joined: string[] = [];
  pieces.forEach((piece, i) => {
    if (i > 0 && belongs(piece, pieces[i - 1])) joined[joined.length - 1] += piece.text;
    else joined.push(piece.text);
  });
  return joined;
}
