/** A history of use as bytes; docs/formats.md has the layout. What is read is not trusted: every number is checked. */

import { hash } from 'node:crypto';
import { HALF_LIFE_TOKENS, Usage, type UsageShape } from './heat.ts';

const MAGIC = Buffer.from('coli-usage\n\0\0\0\0\0');
const VERSION = 1;
const AT = { version: 16, layers: 20, experts: 24, halfLife: 28, identity: 32, tokens: 64, digest: 96 } as const;
const HEADER_BYTES = 128;
/** Count u32, heat f32, age u32. */
const ENTRY_BYTES = 12;
const MAX_U32 = 0xffff_ffff;
/** Age of what was never used. */
const NEVER = MAX_U32;
/** No history is longer: a thousand tokens a second for three hundred years. */
const MAX_TOKENS = 1e13;

/** Which model a history is of. */
export interface UsageOwner {
  /** Hex SHA-256. */
  readonly identity: string;
  readonly shape: UsageShape;
}

/** `damaged` is ours and worthless; `foreign` may be worth something to somebody else. */
export type DecodedUsage =
  | { readonly kind: 'whole'; readonly usage: Usage }
  | { readonly kind: 'damaged' | 'foreign'; readonly why: string };

export function usageFileBytes({ layers, experts }: UsageShape): number {
  return HEADER_BYTES + layers * experts * ENTRY_BYTES;
}

export function encodeUsage(usage: Usage, identity: string): Buffer {
  const { layers, experts } = usage.shape;
  const bytes = Buffer.alloc(usageFileBytes(usage.shape));
  MAGIC.copy(bytes);
  bytes.writeUInt32LE(VERSION, AT.version);
  bytes.writeUInt32LE(layers, AT.layers);
  bytes.writeUInt32LE(experts, AT.experts);
  bytes.writeUInt32LE(HALF_LIFE_TOKENS, AT.halfLife);
  bytes.write(identity, AT.identity, 'hex');
  bytes.writeDoubleLE(Math.min(usage.tokens, MAX_TOKENS), AT.tokens);
  for (let i = 0; i < usage.size; i++) {
    const at = HEADER_BYTES + i * ENTRY_BYTES;
    bytes.writeUInt32LE(Math.min(usage.counts[i], MAX_U32), at);
    bytes.writeFloatLE(usage.heat(i), at + 4);
    bytes.writeUInt32LE(usage.lastUse[i] < 0 ? NEVER : Math.min(Math.floor(usage.age(i)), NEVER - 1), at + 8);
  }
  digestOf(bytes).copy(bytes, AT.digest);
  return bytes;
}

/** Whether the bytes begin as a history of ours, of any version and model. */
export function isUsage(bytes: Buffer): boolean {
  return bytes.subarray(0, MAGIC.length).equals(MAGIC);
}

export function decodeUsage(bytes: Buffer, { identity, shape }: UsageOwner): DecodedUsage {
  const foreign = (why: string): DecodedUsage => ({ kind: 'foreign', why });
  const damaged = (why: string): DecodedUsage => ({ kind: 'damaged', why });
  if (bytes.length === 0) return damaged('is empty');
  if (!isUsage(bytes)) return foreign('is no history of use');
  if (bytes.length < HEADER_BYTES) return damaged('is incomplete');
  const version = bytes.readUInt32LE(AT.version);
  if (version !== VERSION) return foreign(`has version ${version} of the format`);
  if (bytes.toString('hex', AT.identity, AT.identity + 32) !== identity) return foreign('is of another model');
  const layers = bytes.readUInt32LE(AT.layers);
  const experts = bytes.readUInt32LE(AT.experts);
  if (layers !== shape.layers || experts !== shape.experts)
    return foreign(`is of a model with ${layers} layers of ${experts} experts`);
  if (bytes.length !== usageFileBytes(shape)) return damaged('is incomplete');
  if (!digestOf(bytes).equals(bytes.subarray(AT.digest, HEADER_BYTES))) return damaged('is damaged (its hash differs)');
  const usage = entriesOf(bytes, shape);
  return usage ? { kind: 'whole', usage } : damaged('holds numbers that cannot be');
}

function entriesOf(bytes: Buffer, shape: UsageShape): Usage | null {
  const usage = new Usage(shape);
  const tokens = bytes.readDoubleLE(AT.tokens);
  if (!(tokens >= 0 && tokens <= MAX_TOKENS)) return null;
  usage.tokens = tokens;
  for (let i = 0; i < usage.size; i++) {
    const at = HEADER_BYTES + i * ENTRY_BYTES;
    const heat = bytes.readFloatLE(at + 4);
    if (!(heat >= 0 && Number.isFinite(heat))) return null;
    const age = bytes.readUInt32LE(at + 8);
    usage.set(i, bytes.readUInt32LE(at), heat, age === NEVER ? Number.POSITIVE_INFINITY : age);
  }
  return usage;
}

/** Of everything but the digest itself. */
function digestOf(bytes: Buffer): Buffer {
  const covered = Buffer.concat([bytes.subarray(0, AT.digest), bytes.subarray(HEADER_BYTES)]);
  return hash('sha256', covered, 'buffer');
}
