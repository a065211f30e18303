/**
 * The printable alphabet of byte-level BPE: each byte is one character. Printable Latin-1 bytes stand for themselves, the
 * other 68 follow from U+0100 on in ascending order.
 */

const CHARACTER_OF_BYTE: string[] = [];
const BYTE_OF_CHARACTER = new Map<string, number>();

{
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const character = String.fromCharCode(printable ? byte : next++);
    CHARACTER_OF_BYTE.push(character);
    BYTE_OF_CHARACTER.set(character, byte);
  }
}

const encoder = new TextEncoder();

/** "a b" -> "aĠb" */
export function byteLevelText(text: string): string {
  return spellBytes(encoder.encode(text));
}

/** Any bytes in the alphabet. */
export function spellBytes(bytes: Uint8Array): string {
  let out = '';
  for (const byte of bytes) out += CHARACTER_OF_BYTE[byte];
  return out;
}

/** Bytes of a token in the alphabet, or null when it has a character outside. */
export function byteLevelBytes(token: string): Uint8Array | null {
  const bytes: number[] = [];
  for (const character of token) {
    const byte = BYTE_OF_CHARACTER.get(character);
    if (byte === undefined) return null;
    bytes.push(byte);
  }
  return Uint8Array.from(bytes);
}
