/**
 * `.coli_usage`, the history that the C engine keeps beside a model: lines of three whole numbers. `-1 LAYERS EXPERTS` and
 * `-2 VERSION ENGINE` are headers, which the oldest files lack; `LAYER EXPERT COUNT` is how often an expert was chosen.
 */

import { HALF_LIFE_TOKENS, Usage, type UsageShape } from './heat.ts';

export const C_ENGINE_USAGE = '.coli_usage';
/** 100,000 experts at 30 bytes are 3 MB. */
export const MAX_C_USAGE_BYTES = 16 * 2 ** 20;

const VERSION = 1;
/** What Inkling models have instead. */
const BINARY_MAGIC = 'IKU1';
const LINE = /^(-?\d{1,15})[ \t]+(\d{1,15})[ \t]+(\d{1,15})$/;
const FNV_START = 2_166_136_261;
const FNV_PRIME = 16_777_619;

export type ImportedUsage =
  | { readonly usage: Usage; readonly note: string | null }
  | { readonly usage: null; readonly why: string };

export interface CUsageOwner {
  readonly shape: UsageShape;
  /** Name of the C engine's implementation: the model type. */
  readonly engine: string;
  /** The user named this very file: then one of another engine counts, and is told. */
  readonly chosen: boolean;
}

/** `bytes`: the whole file. Nothing in it can throw; what is wrong with it comes back in words. */
export function importCUsage(bytes: Buffer, { shape, engine, chosen }: CUsageOwner): ImportedUsage {
  const refuse = (why: string): ImportedUsage => ({ usage: null, why });
  if (bytes.length > MAX_C_USAGE_BYTES) return refuse('is too large');
  if (bytes.toString('latin1', 0, 4) === BINARY_MAGIC) return refuse('is a binary history, which is not read');
  const counts = new Float64Array(shape.layers * shape.experts);
  let note: string | null = null;
  let number = 0;
  for (const line of bytes.toString('latin1').split('\n')) {
    number++;
    if (line.trim() === '') continue;
    const match = LINE.exec(line.trim());
    if (!match) return refuse(`has a line that is not three numbers (${number})`);
    const [first, second, third] = match.slice(1).map(Number);
    if (first === -1 && (second !== shape.layers || third !== shape.experts))
      return refuse(`is of a model with ${second} layers of ${third} experts`);
    if (first === -2) {
      if (second !== VERSION) return refuse(`has version ${second} of the format`);
      if (third !== engineId(engine)) {
        if (!chosen) return refuse('is of another kind of model');
        note = 'is of another kind of model; it was named, so it counts';
      }
    }
    if (first < 0) continue;
    if (first >= shape.layers || second >= shape.experts)
      return refuse(`names expert ${second} of layer ${first}, which the model does not have (line ${number})`);
    counts[first * shape.experts + second] += third;
  }
  return { usage: fromCounts(counts, shape), note };
}

/** FNV-1a, 32 bits. */
export function engineId(name: string): number {
  let id = FNV_START;
  for (let i = 0; i < name.length; i++) id = Math.imul(id ^ name.charCodeAt(i), FNV_PRIME) >>> 0;
  return id;
}

/** As if the uses had been spread evenly over as many tokens as they took. */
function fromCounts(counts: Float64Array, shape: UsageShape): Usage {
  const usage = new Usage(shape);
  const perLayer = new Float64Array(shape.layers);
  for (const [i, count] of counts.entries()) perLayer[Math.floor(i / shape.experts)] += count;
  usage.tokens = Math.max(...perLayer) / shape.topK;
  const faded = usage.tokens * (Math.LN2 / HALF_LIFE_TOKENS);
  const left = faded > 0 ? (1 - Math.exp(-faded)) / faded : 1;
  for (const [i, count] of counts.entries()) {
    if (count > 0) usage.set(i, count, count * left, usage.tokens);
  }
  return usage;
}
