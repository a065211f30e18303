/** What one child process measures, the same words for both engines. */

export type Measure = 'decode' | 'prefill' | 'limited';
export const MEASURES: readonly Measure[] = ['decode', 'prefill', 'limited'];

/** Token ids are given, never sampled, and come from one seed, so that both engines route the same tokens. */
export interface Work {
  /** Fed before anything counts: in one chunk, then one by one. */
  readonly warmTokens: number;
  readonly warmSingles: number;
  /** Fed in one chunk; timed when `decodeTokens` is 0. */
  readonly promptTokens: number;
  /** Fed one by one after the prompt, each with its logits; this is what is timed. */
  readonly decodeTokens: number;
}

/** 128 tokens of 8 experts each leave no expert of 64 untouched; few tokens where each of them takes seconds. */
export const WORK: Readonly<Record<Measure, Work>> = {
  decode: { warmTokens: 128, warmSingles: 16, promptTokens: 32, decodeTokens: 256 },
  prefill: { warmTokens: 128, warmSingles: 0, promptTokens: 512, decodeTokens: 0 },
  limited: { warmTokens: 16, warmSingles: 0, promptTokens: 16, decodeTokens: 16 },
};

export const WARM_SEED = 7;
export const SEED = 1;

/** Enough for the longest timeline of `work`, in whole KV blocks of both engines. */
export function contextTokens({ warmTokens, warmSingles, promptTokens, decodeTokens }: Work): number {
  return Math.ceil(Math.max(warmTokens + warmSingles, promptTokens + decodeTokens) / 256) * 256;
}

export interface OurRequest {
  readonly model: string;
  readonly threads: number;
  readonly kernels: string;
  readonly share: number;
  readonly work: Work;
}

export interface LlamaConfig {
  readonly threads: number;
  readonly flashAttention: boolean;
  readonly loading: 'mmap' | 'read' | 'direct';
  /** False: weights stay as they lie in the file (llama.cpp's --no-repack). */
  readonly repack: boolean;
}

export interface LlamaRequest extends LlamaConfig {
  readonly model: string;
  /** The folder of the addon, and the folder of the CPU libraries. */
  readonly binaries: string;
  readonly libraries: string;
  readonly work: Work;
}

export interface ChildResult {
  readonly tokensPerSecond: number;
  /** The most likely token after the last one fed: both engines should agree on it. */
  readonly top: number;
  readonly maxRssBytes: number;
  readonly majorFaults: number;
  /** What the engine says about itself: CPU features, buffers; kernels, slots. */
  readonly about: readonly string[];
  /** Bytes of experts read while time was taken; null where nobody counts. */
  readonly bytesRead: number | null;
}
