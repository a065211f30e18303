/** What the CLI, the evaluations and later the server see of the engine. Types only. */

import type { PolicyChoice } from '../experts/policies/policies.ts';
import type { GrammarSpec } from '../grammar/api.ts';
import type { KernelChoice, KernelName } from '../kernels/kernels.ts';
import type { KvEncoding } from '../layers/row-memory.ts';
import type { Family } from '../models/family.ts';
import type { IoMode } from '../storage/open-files.ts';
import type { TelemetryReader } from '../telemetry/reader.ts';
import type { SpeedLimits } from '../telemetry/speed.ts';
import type { PlanFile } from './plan-schema.ts';
import type { UsageInfo } from './usage-mode.ts';

export type { GrammarSpec, IoMode, KernelChoice, KvEncoding, PlanFile, PolicyChoice };
export type FamilyChat = Family['chat'];
/** `int8`: integer formats use int8 activations (fast). `exact`: float32 activations (slow, for comparisons). */
export type Activations = 'int8' | 'exact';

export interface EngineOptions {
  /** Model directory. */
  readonly model: string;
  /**
   * A plan made before (docs/formats.md), or its file: it decides ram, threads, context, slots, expertSlots, chunk, readers, kv and
   * activations. Another value of one of these is refused, and so is a plan that no longer fits.
   */
  readonly plan?: string | PlanFile;
  /** Ceiling of the whole process in bytes, or 'auto' = what is available minus a reserve. */
  readonly ram?: number | 'auto';
  /** Lanes (engine included); default: physical cores. */
  readonly threads?: number;
  /** Context in tokens; default min(model maximum, 4096). */
  readonly context?: number;
  readonly kernels?: KernelChoice;
  /**
   * What may be read before a router asks for it; never a value changes. `off`: nothing. `on`: the next layer's likely experts while few
   * tokens are computed, all of them while a prompt is. `auto` (default): the same, but likely ones only where a trial shows that it pays.
   */
  readonly prefetch?: 'off' | 'auto' | 'on';
  /** Total over all layers; default: as many as the budget holds. */
  readonly expertSlots?: number;
  /** Without `expertSlots`: take only this share of the slots that the budget holds, the rest is for the page cache; default 1. */
  readonly expertShare?: number;
  readonly activations?: Activations;
  /** Prompt tokens per forward pass; default by the plan. Never changes a result. */
  readonly chunk?: number;
  /** I/O workers; default by the plan. */
  readonly readers?: number;
  /** `auto` reads past the page cache where the file system allows it; `direct` refuses to fall back. Default auto. */
  readonly io?: IoMode;
  /** Directories with copies of the model's files, all or some, on other drives: at most 4. Each expert is read from one place. */
  readonly mirrors?: readonly string[];
  /** GB/s of the model's drive and of each mirror, which decide what comes from where. Default: measured at the start. */
  readonly driveSpeeds?: readonly number[];
  /** Check container hashes on the first load of every record. */
  readonly verify?: boolean;
  /** Sessions: conversations in memory, and requests that are answered together; default 1. Each has room for `context` tokens. */
  readonly slots?: number;
  /** How keys and values are kept; default f32. bf16 takes half the memory and changes the numbers. */
  readonly kv?: KvEncoding;
  /** Directory in which keys and values of conversations outlive their session and the process. */
  readonly kvDir?: string;
  /** Most bytes that this model's files in `kvDir` may take; the oldest go first. */
  readonly kvDirBytes?: number;
  /** Requests may say what their answer must look like (`constraint`); memory for the worker that this takes is planned. Default false. */
  readonly constraints?: boolean;
  /** Load the multi-token-prediction head too, for checkpoints that have one. Default false: nothing needs it but its check. */
  readonly mtp?: boolean;
  /**
   * The history of how much each expert is used: `on`, `read` (used, not saved), `off`, or the path of a file in place of the usual
   * one. Default: COLI_USAGE, else on. Never changes a value.
   */
  readonly usage?: string;
  /** File to which the routing is recorded (docs/formats.md). */
  readonly trace?: string;
  /** Which experts are given up for others; `auto`, the default, goes by a replay of the last texts. Never a value changes. */
  readonly policy?: PolicyChoice;
  /** Longest `score` that asks for logits: what it returns lies outside all other memory and is planned. Default 0. */
  readonly scoredTokens?: number;
  /** What else the process needs, a server for example: part of the plan. */
  readonly reserveBytes?: number;
}

export interface SamplingOptions {
  /** 0 = greedy. */
  readonly temperature?: number;
  readonly topP?: number;
  /** 0 or missing = no limit. */
  readonly topK?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  /** Token id -> value added to its logit. */
  readonly logitBias?: Readonly<Record<number, number>>;
  /** Missing: a random one is chosen and reported. */
  readonly seed?: number;
  /** Report the log-probabilities of the chosen token and of this many most likely ones (0 = chosen only). */
  readonly logprobs?: number;
}

export interface ChatMessage {
  readonly role: string;
  /** Null only beside tool calls; templates tell it from an empty text. */
  readonly content: string | null;
  readonly [key: string]: unknown;
}

/** A conversation to be rendered by the checkpoint's template, or text / ids to be continued as they are. */
export type Prompt =
  | {
      readonly messages: readonly ChatMessage[];
      readonly tools?: readonly unknown[];
      /** Further variables of the template, such as enable_thinking. */
      readonly variables?: Readonly<Record<string, unknown>>;
      /** The last message is an assistant's, and the answer goes on where it ends. */
      readonly continueFinal?: boolean;
    }
  | { readonly text: string }
  | { readonly ids: readonly number[] };

export interface GenerateRequest extends SamplingOptions {
  readonly prompt: Prompt;
  /** Default: generation_config's max_new_tokens, else the rest of the context. Clamped to the rest of the context. */
  readonly maxTokens?: number;
  readonly stop?: readonly string[];
  /** Go on after stop ids (their text is not shown). */
  readonly ignoreEos?: boolean;
  readonly constraint?: ConstraintRequest;
  /**
   * Added tokens that are told as the marker of their event instead of as text, special or not. Those that the tokenizer lacks
   * do not matter. No stop string reaches across one.
   */
  readonly markers?: readonly string[];
}

export interface ConstraintRequest {
  /** What the answer must look like. It then ends where the language ends. */
  readonly grammar: GrammarSpec;
  /** A control token, such as </think>: what comes up to and with it is free. Missing: the constraint holds from the start. */
  readonly after?: string;
}

/** A request that has been checked in full; to be given to `generate` or discarded. */
export interface PreparedRequest {
  readonly promptIds: readonly number[];
  readonly sampling: EffectiveSampling;
  /** Frees what was prepared for it; for requests that are not run. */
  discard(): void;
}

export interface TokenLogprobs {
  readonly id: number;
  readonly logprob: number;
  readonly top: readonly { readonly id: number; readonly logprob: number }[];
}

/** `stop`: stop id or stop string; `length`: token limit or context end; `cancelled`: asked to stop. */
export type FinishReason = 'stop' | 'length' | 'cancelled';

/** Effective values after defaults: flag, then generation_config, then temperature 1 and top_p 1. */
export interface EffectiveSampling {
  temperature: number;
  topP: number;
  topK: number;
  minP: number;
  repetitionPenalty: number;
  presencePenalty: number;
  frequencyPenalty: number;
  seed: number;
  maxTokens: number;
}

/** Counters of experts and reads are those of the steps in which the request took part, neighbours included. */
export interface GenerateStats {
  /** Tokens of the prompt that were computed, and those that were still there from earlier. */
  prefill_tokens: number;
  cached_tokens: number;
  prefill_s: number;
  decode_tokens: number;
  decode_s: number;
  /** Requests decoded together, mean over the tokens of this one. */
  decode_batch: number;
  ttft_s: number;
  expert_requests: number;
  expert_hits: number;
  /** Speculative reads started, and those evicted or left unused when the request ended. */
  expert_prefetched: number;
  expert_wasted: number;
  /** Of those read ahead, asked for in the end; and while they were still being read. */
  expert_prefetch_used: number;
  expert_prefetch_late: number;
  /** Hits on hot experts that were read while no request ran. */
  expert_warm_hits: number;
  /** Experts asked for by layers that had been guessed about, and those of them that were among the guesses: the recall. */
  expert_guessable: number;
  expert_guessed: number;
  /** Bytes of reads ahead that were asked for, and of those that were not. */
  prefetch_useful_bytes: number;
  prefetch_wasted_bytes: number;
  /** How often `prefetch: auto` changed its mind, and what it holds at the end: true while guesses are made in every token. */
  prefetch_changes: number;
  prefetch_on: boolean;
  bytes_read: number;
  read_service_s: number;
  read_wait_s: number;
  resident_bytes: number;
  slot_bytes: number;
  max_rss_bytes: number;
  kernels: KernelName;
  activations: Activations;
  threads: number;
}

export type GenerateEvent =
  | { type: 'start'; promptIds: number[]; sampling: EffectiveSampling; cachedTokens: number }
  | { type: 'prefill'; done: number; total: number }
  /**
   * `text` is whole UTF-8 and may be empty while bytes or a possible stop string are held back; it comes at the latest
   * with the last token. All texts joined are the text of `end`. `marker`: the token is one of those that the request names; the
   * text came before it. One that ends the answer is told as its end alone.
   */
  | { type: 'token'; id: number; text: string; marker?: string; logprobs?: TokenLogprobs }
  | {
      type: 'end';
      text: string;
      tokenIds: number[];
      finishReason: FinishReason;
      /** Which stop ended it: a token id, a string, or null. */
      stopReason: number | string | null;
      stats: GenerateStats;
    };

/** What loading decided; the banner, `info` and the statistics read it. */
export interface EngineInfo {
  directory: string;
  family: string;
  layers: number;
  hiddenSize: number;
  /** Routed experts per layer, and over all layers. */
  experts: number;
  totalExperts: number;
  topK: number;
  vocabSize: number;
  maxContext: number;
  context: number;
  parameters: number;
  bytesOnDisk: number;
  /** Encoding -> bytes on disk. */
  encodings: Record<string, number>;
  kernels: KernelName;
  kernelNote: string | null;
  activations: Activations;
  kv: KvEncoding;
  /** Sessions. */
  slots: number;
  threads: number;
  readers: number;
  directIo: boolean;
  /** Which experts are given up for others; `auto` only before the model is opened. */
  policy: PolicyChoice;
  prefetch: NonNullable<EngineOptions['prefetch']>;
  usage: UsageInfo;
  plan: PlanSummary;
  /** Hex; engines with equal ones give equal bytes for equal requests: a digest of the model and of what changes numbers. */
  fingerprint: string;
  /** Lines worth telling once: a fallback to buffered reads, clamped slots, ... */
  notes: string[];
}

/** All in bytes unless named otherwise. `total` = everything the process may hold. */
export interface PlanSummary {
  budget: number;
  /** How the budget came about: given, or the formula of `auto` with its numbers. */
  budgetSource: string;
  total: number;
  smallestBudget: number;
  resident: number;
  kv: number;
  scratch: number;
  overhead: number;
  slots: number;
  slotBytes: number;
  expertSlots: number;
  chunkTokens: number;
}

/** Teacher-forced evaluation of a token sequence from an empty session. */
export interface ScoreRequest {
  readonly ids: readonly number[];
  /** Negative log-likelihood of ids[i+1] after ids[0..i], for every i (the last one needs `next`). */
  readonly nll?: boolean;
  /** The token that follows the last id: a target only. */
  readonly next?: number;
  readonly logits?: boolean;
  readonly hidden?: boolean;
  readonly router?: boolean;
  /** Which keys the indexers choose, in models that have some. */
  readonly selected?: boolean;
  /** What the prediction head says, given the true next tokens; for engines opened with `mtp`. */
  readonly mtp?: boolean;
}

export interface ScoreResult {
  nll?: Float64Array;
  /** [tokens, vocab] */
  logits?: Float32Array;
  /** Per layer: residual stream after the layer, [tokens, hiddenSize]. */
  hidden?: Float32Array[];
  /** Per layer: chosen experts in slot order [tokens, topK], and their weights. */
  router?: { ids: Int32Array; weights: Float32Array }[];
  /** Per layer, per token: positions of the keys that its indexer chose, ascending; null for layers without one. */
  selected?: (Int32Array[] | null)[];
  /** Row t: logits of token t + 2 [tokens - 1, vocab], and the head's hidden state before its last norm [tokens - 1, hiddenSize]. */
  mtp?: { logits: Float32Array; hidden: Float32Array };
}

export interface EncodeOptions {
  /** Encode a text that no context holds too. It takes up to a hundred times its size in memory, which no budget counts. */
  readonly anyLength?: boolean;
}

/** What the tokenizer and the chat template of a model are. */
export interface TextFacts {
  readonly hasTemplate: boolean;
  /** Source of the default template; null without one. */
  readonly template: string | null;
  /** Spellings of the added tokens. */
  readonly addedTokens: readonly string[];
  /** What is known of the chats of the family. */
  readonly chat: FamilyChat;
}

/** Counters since the engine was opened, and what it does now. */
export interface EngineStatus {
  /** Requests that have a session, and those that wait for one. */
  readonly active: number;
  readonly waiting: number;
  /** Forward passes; those in which tokens were decoded, and how many tokens that were. */
  readonly steps: number;
  readonly decodeSteps: number;
  readonly decodeTokens: number;
  /** Tokens of prompts: computed, found in a session, found in `kvDir`. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly restoredTokens: number;
  readonly expertRequests: number;
  readonly expertHits: number;
  /** Hot experts read while no request ran, those of them that were asked for later, and pins that went to other experts. */
  readonly expertsWarmed: number;
  readonly expertWarmHits: number;
  readonly pinSwaps: number;
  readonly bytesRead: number;
  readonly readWaitSeconds: number;
}

/** The engine as its users see it. Up to `slots` generations run together; others wait their turn. */
export interface Engine {
  readonly info: EngineInfo;
  readonly text: TextFacts;
  /** Throws once the engine has died (ENGINE_DIED) or is closed. */
  readonly status: EngineStatus;
  /** What the engine has measured of itself, in shared memory: reading it asks nobody. */
  readonly telemetry: TelemetryReader;
  /**
   * What the machine would allow, measured for a few seconds when no request runs. Experts in memory are given up for it, so it is
   * for the end of a run.
   */
  measureLimits(): Promise<SpeedLimits>;
  /** Checks everything about a request and reads its prompt; computes nothing. Throws what `generate` would. */
  prepare(request: GenerateRequest, signal?: AbortSignal): Promise<PreparedRequest>;
  /**
   * Streams events; ends with exactly one `end`, or throws. Aborting gives finishReason 'cancelled'. `onEnd` is called when the
   * engine has nothing more to do for it, however slowly the events are read.
   */
  generate(
    request: GenerateRequest | PreparedRequest,
    signal?: AbortSignal,
    onEnd?: () => void,
  ): AsyncIterable<GenerateEvent>;
  score(request: ScoreRequest): Promise<ScoreResult>;
  /**
   * Ids as a prompt would have them (messages rendered and guarded, text encoded raw). Throws CONTEXT_EXCEEDED for what is
   * too long for any prompt, unless `anyLength`.
   */
  encode(prompt: Prompt, options?: EncodeOptions): Promise<number[]>;
  /** A prompt as the text that is encoded, and its ids. */
  render(prompt: Prompt): Promise<{ text: string; ids: number[] }>;
  decode(ids: readonly number[]): Promise<string>;
  /** The bytes of one token; empty for an id without one. */
  tokenBytes(id: number): Uint8Array;
  close(): Promise<void>;
}

/** Progress while opening: phases 'tokenizer', 'plan', 'load'. */
export interface OpenProgress {
  phase: string;
  doneBytes: number;
  totalBytes: number;
}
