import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decodeIds, StreamDecoder } from './stream-decoder.ts';
import { buildTokenBytes, type TokenBytes } from './token-bytes.ts';
import { Tokenizer } from './tokenizer.ts';
import { checkTokenizer } from './tokenizer-file.ts';

/** Token k has the bytes tokens[k]. */
function table(tokens: (Uint8Array | string)[], special: number[] = [], dropsLeadingSpace = false): TokenBytes {
  const bytes = tokens.map(token => (typeof token === 'string' ? new TextEncoder().encode(token) : token));
  const offsets = new Uint32Array(new SharedArrayBuffer((bytes.length + 1) * 4));
  bytes.forEach((token, i) => {
    offsets[i + 1] = offsets[i] + token.length;
  });
  const all = new Uint8Array(new SharedArrayBuffer(offsets[bytes.length]));
  bytes.forEach((token, i) => {
    all.set(token, offsets[i]);
  });
  const flags = new Uint8Array(new SharedArrayBuffer(bytes.length));
  for (const id of special) flags[id] = 1;
  return { offsets, bytes: all, special: flags, dropsLeadingSpace };
}

function stream(tokens: TokenBytes, ids: number[], options = {}): string[] {
  const decoder = new StreamDecoder(tokens, options);
  return [...ids.map(id => decoder.push(id)), decoder.flush()];
}

const hex = (text: string) => Uint8Array.from(text.split(' '), byte => Number.parseInt(byte, 16));

describe('incomplete and invalid UTF-8', () => {
  test('a character is held back until it is whole', () => {
    expect(stream(table([hex('E2 80'), hex('A6')]), [0, 1])).toEqual(['', '…', '']);
  });

  test('a token that cannot continue the character gives U+FFFD and its own text', () => {
    expect(stream(table([hex('E2 80'), ' x']), [0, 1])).toEqual(['', '\ufffd x', '']);
  });

  test.each([
    ['80', '\ufffd'],
    ['ED A0 80', '\ufffd\ufffd\ufffd'],
    ['F0 80 80 41', '\ufffd\ufffd\ufffdA'],
    ['E2 80 41', '\ufffdA'],
    ['C0 AF', '\ufffd\ufffd'],
    ['F4 90 80 80', '\ufffd\ufffd\ufffd\ufffd'],
    ['F0 9F 98', '\ufffd'],
    ['61 F1 80 80 E1 80 C2 62', 'a\ufffd\ufffd\ufffdb'],
  ])('%s', (bytes, text) => {
    const tokens = table([...hex(bytes)].map(byte => Uint8Array.of(byte)));
    expect(stream(tokens, [...tokens.special.keys()]).join('')).toBe(text);
  });

  test('any bytes, cut anywhere, equal TextDecoder on the whole', () => {
    // Bytes that start, continue and break characters, more often than chance would have them.
    const byte = fc.oneof(
      fc.nat(255),
      fc.constantFrom(0xe2, 0x80, 0xed, 0xa0, 0xf0, 0x9f, 0xf4, 0x90, 0xbf, 0xc2, 0xef, 0xbb, 0x41),
    );
    const piece = fc.oneof(
      fc.uint8Array({ maxLength: 3 }),
      fc.array(byte, { maxLength: 4 }).map(list => Uint8Array.from(list)),
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 20 }), pieces => {
        const whole = Uint8Array.from(pieces.flatMap(token => [...token]));
        const tokens = table(pieces);
        const ids = [...pieces.keys()];
        const expected = new TextDecoder('utf-8', { ignoreBOM: true }).decode(whole);
        expect(stream(tokens, ids).join('')).toBe(expected);
        expect(decodeIds(tokens, ids)).toBe(expected);
      }),
      { numRuns: 1000 },
    );
  });

  test('after a flush the decoder starts anew', () => {
    const decoder = new StreamDecoder(table([hex('E2 80'), hex('A6')]));
    expect([decoder.push(0), decoder.flush(), decoder.push(1), decoder.flush()]).toEqual(['', '\ufffd', '\ufffd', '']);
  });
});

describe('spaces and special tokens', () => {
  const tokens = table([' a', ' b', '<|end|>', 'c', hex('E2 80'), hex('A6')], [2]);

  test('pushes joined equal the decoding of all ids', () => {
    expect(stream(tokens, [0, 1, 2, 3])).toEqual([' a', ' b', '', 'c', '']);
    expect(decodeIds(tokens, [0, 1, 2, 3])).toBe(' a bc');
  });

  test('special tokens give text when asked', () => {
    expect(decodeIds(tokens, [0, 2, 3], { showSpecial: true })).toBe(' a<|end|>c');
  });

  test('a hidden special token does not break a character, a shown one does', () => {
    expect(decodeIds(tokens, [4, 2, 5])).toBe('…');
    expect(decodeIds(tokens, [4, 2, 5], { showSpecial: true })).toBe('\ufffd<|end|>\ufffd');
  });

  test('ids beyond the vocabulary give nothing', () => {
    expect(decodeIds(tokens, [0, 6, 99999, -1, 1])).toBe(' a b');
  });

  test('the space that SentencePiece adds is dropped once, at the start only', () => {
    const sentencePiece = table([' Hello', ' world', ' '], [], true);
    expect(stream(sentencePiece, [0, 1])).toEqual(['Hello', ' world', '']);
    expect(stream(sentencePiece, [2, 0])).toEqual(['', ' Hello', '']);
    expect(decodeIds(sentencePiece, [1], { continues: true })).toBe(' world');
  });
});

describe('bytes of tokens', () => {
  const PACKS = new URL('../../test/oracles/', import.meta.url).pathname;

  test('live in shared memory, one entry per id', () => {
    const { tokenBytes, vocabSize } = Tokenizer.load(`${PACKS}qwen3-moe`);
    for (const part of [tokenBytes.offsets, tokenBytes.bytes, tokenBytes.special]) {
      expect(part.buffer).toBeInstanceOf(SharedArrayBuffer);
    }
    expect(tokenBytes.offsets.length).toBe(vocabSize + 1);
  });

  test('every byte of byte-level BPE and of byte fallback is there', () => {
    for (const name of ['qwen3-moe', 'mixtral']) {
      const { tokenBytes } = Tokenizer.load(`${PACKS}${name}`);
      const single = new Set<number>();
      for (let id = 0; id < tokenBytes.special.length; id++) {
        const [start, end] = tokenBytes.offsets.subarray(id, id + 2);
        if (end - start === 1) single.add(tokenBytes.bytes[start]);
      }
      expect(single.size, name).toBe(256);
    }
  });

  test.each(['čč', 'Ġx', '<Ċ>', '🙂', '<|im_end|>'])('the added token %s decodes to itself', content => {
    const json = JSON.parse(readFileSync(`${PACKS}qwen3-moe/tokenizer.json`, 'utf8'));
    const added_tokens = [{ id: 600, content }];
    const bytes = buildTokenBytes(checkTokenizer({ ...json, added_tokens }));
    expect(decodeIds(bytes, [600])).toBe(content);
  });

  test('an added token that shares the id of a byte leaves the byte alone', () => {
    const json = JSON.parse(readFileSync(`${PACKS}qwen3-moe/tokenizer.json`, 'utf8'));
    const id = json.model.vocab.é;
    const bytes = buildTokenBytes(checkTokenizer({ ...json, added_tokens: [{ id, content: 'é' }] }));
    expect([...bytes.bytes.subarray(bytes.offsets[id], bytes.offsets[id + 1])]).toEqual([0xe9]);
  });
});
