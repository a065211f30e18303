/** Raw bytes of every token, in shared memory, so that any thread can turn ids into text without asking or copying. */

import { isJsonObject, jsonType } from '../formats/json.ts';
import { byteLevelBytes } from './byte-level.ts';
import { type TokenizerFile, tokenizerFault } from './tokenizer-file.ts';

export interface TokenBytes {
  /** [vocabSize + 1]: token `id` is bytes[offsets[id] .. offsets[id + 1]). Ids without a token have no bytes. */
  readonly offsets: Uint32Array<SharedArrayBuffer>;
  readonly bytes: Uint8Array<SharedArrayBuffer>;
  /** [vocabSize]: 1 where a token gives no text unless asked for. */
  readonly special: Uint8Array<SharedArrayBuffer>;
  /** SentencePiece style: one space at the very start of a text was added when encoding and is not shown. */
  readonly dropsLeadingSpace: boolean;
}

/** How a token's text becomes bytes. */
type TokenToBytes = (token: string) => Uint8Array;

const encoder = new TextEncoder();

export function buildTokenBytes(file: TokenizerFile): TokenBytes {
  const { toBytes, dropsLeadingSpace } = readDecoder(file.decoder);
  const byId: (Uint8Array | undefined)[] = new Array(file.vocabSize).fill(undefined);
  for (const [token, id] of Object.entries(file.model.vocab)) byId[id] = toBytes(token);
  // Added tokens are plain text whatever the alphabet of the others: a "č" in one is not a carriage return. Only an added
  // token that shares the id of a single byte must stay that byte, or other characters would break.
  for (const token of file.addedTokens) {
    if (byId[token.id]?.length !== 1) byId[token.id] = encoder.encode(token.content);
  }

  const total = byId.reduce((sum, token) => sum + (token?.length ?? 0), 0);
  const table = {
    offsets: new Uint32Array(new SharedArrayBuffer((file.vocabSize + 1) * 4)),
    bytes: new Uint8Array(new SharedArrayBuffer(total)),
    special: new Uint8Array(new SharedArrayBuffer(file.vocabSize)),
    dropsLeadingSpace,
  };
  let offset = 0;
  byId.forEach((token, id) => {
    table.offsets[id] = offset;
    if (token) table.bytes.set(token, offset);
    offset += token?.length ?? 0;
  });
  table.offsets[file.vocabSize] = offset;
  for (const token of file.addedTokens) if (token.special) table.special[token.id] = 1;
  return table;
}

/** The `decoder` of tokenizer.json as a rule for single tokens; refuses what cannot be one. */
function readDecoder(config: unknown): { toBytes: TokenToBytes; dropsLeadingSpace: boolean } {
  const steps = isJsonObject(config) && config.type === 'Sequence' ? config.decoders : [config];
  if (!Array.isArray(steps))
    throw tokenizerFault('TOKENIZER_INVALID', ['decoder'], `must be an object, not ${jsonType(config)}`);
  let replace = (token: string) => token;
  let byteLevel = false;
  let byteFallback = false;
  let dropsLeadingSpace = false;
  steps.forEach((step: unknown, i) => {
    const path = steps.length > 1 ? ['decoder', 'decoders', i] : ['decoder'];
    const type = isJsonObject(step) ? step.type : undefined;
    if (!isJsonObject(step))
      throw tokenizerFault('TOKENIZER_UNSUPPORTED', path, `is ${jsonType(step)}; a decoder is needed`);
    if (type === 'ByteLevel') byteLevel = true;
    else if (type === 'ByteFallback') byteFallback = true;
    else if (type === 'Replace') replace = chain(replace, replacement(step, path));
    else if (type === 'Strip' && step.content === ' ' && step.start === 1 && !step.stop) dropsLeadingSpace = true;
    else if (type === 'Metaspace') {
      replace = chain(replace, token => token.replaceAll(String(step.replacement ?? '▁'), ' '));
      dropsLeadingSpace = step.prepend_scheme !== 'never' && step.add_prefix_space !== false;
    } else if (type !== 'Fuse') {
      throw tokenizerFault('TOKENIZER_UNSUPPORTED', path, `is ${JSON.stringify(step)}, which is not supported`);
    }
  });
  const toBytes: TokenToBytes = token => {
    const byte = byteFallback ? /^<0x([0-9A-Fa-f]{2})>$/.exec(token) : null;
    if (byte) return Uint8Array.of(Number.parseInt(byte[1], 16));
    const text = replace(token);
    return (byteLevel ? byteLevelBytes(text) : null) ?? encoder.encode(text);
  };
  return { toBytes, dropsLeadingSpace };
}

function chain(first: (token: string) => string, then: (token: string) => string): (token: string) => string {
  return token => then(first(token));
}

function replacement(step: Record<string, unknown>, path: (string | number)[]): (token: string) => string {
  const pattern = isJsonObject(step.pattern) ? step.pattern.String : undefined;
  const content = step.content;
  if (typeof pattern !== 'string' || typeof content !== 'string') {
    throw tokenizerFault('TOKENIZER_UNSUPPORTED', path, 'must replace a String by a string');
  }
  return token => token.replaceAll(pattern, () => content);
}
