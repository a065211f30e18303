/**
 * The plan as a file: what `coli plan --json` prints and `--plan FILE` reads. Field by field in docs/formats.md. Sizes are bytes, speeds
 * bytes or tokens per second, shares and rates from 0 to 1.
 */

import { z } from 'zod';

/** Raised when a field changes its meaning or goes; new fields alone do not need it. */
export const PLAN_VERSION = 1;

/** More than any machine has: numbers of a file are used in arithmetic that must stay exact. */
const bytes = z.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const count = z
  .number()
  .int()
  .min(0)
  .max(2 ** 31);
const least1 = z
  .number()
  .int()
  .min(1)
  .max(2 ** 31);
const rate = z.number().min(0);
const share = z.number().min(0).max(1);
/** Longest texts are notes with a path in them. */
const text = z.string().max(8192);
/** Layers of the deepest model are some hundreds. */
const MAX_LAYERS = 4096;
/** Far more than there are codes and notes. */
const MAX_LINES = 256;
/** More than there may be mirrors. */
const MAX_DRIVES = 64;

const spread = z.object({ min: bytes, median: bytes, max: bytes });

const speed = z.object({ bytes_per_second: rate, median_read_us: rate, p99_read_us: rate });

/** Numbers over which a speed depends. */
const range = z.object({ low: rate, high: rate });

export const planSchema = z.object({
  version: z.literal(PLAN_VERSION),
  colibri: text,
  created: text,
  model: z.object({
    directory: text,
    family: text,
    identity: z.string().regex(/^[0-9a-f]{64}$/),
    parameters: z.number().min(0),
    bytes_on_disk: bytes,
    layers: count,
    moe_layers: count,
    experts_per_layer: count,
    experts_per_token: count,
    vocab_size: count,
    max_context: count,
  }),
  settings: z.object({
    context: least1,
    sessions: least1,
    threads: least1,
    readers: least1,
    chunk_tokens: least1,
    expert_slots: least1,
    kernels: text,
    activations: z.enum(['int8', 'exact']),
    kv: z.enum(['f32', 'bf16']),
    server: z.boolean(),
  }),
  machine: z.object({
    cpu: text,
    logical_cpus: count,
    memory_bytes: bytes,
    available_bytes: bytes,
    cgroup_left_bytes: bytes.nullable(),
    direct_io: z.boolean(),
  }),
  memory: z.object({
    budget_bytes: bytes,
    budget_source: text,
    smallest_budget_bytes: bytes,
    total_bytes: bytes,
    resident_bytes: bytes,
    resident_by_role: z.record(text, bytes),
    kv_bytes: bytes,
    scratch_bytes: bytes,
    slots_bytes: bytes,
    slot_bytes: bytes,
    overhead_bytes: bytes,
    first_start_extra_bytes: bytes,
    overhead: z.object({
      base: bytes,
      lanes: bytes,
      readers: bytes,
      first_start: bytes,
      tokenizer: bytes,
      tables: bytes,
      history: bytes,
      policy: bytes,
      requests: bytes,
      telemetry: bytes,
      server: bytes,
      scores: bytes,
      constraints: bytes,
      saved_kv: bytes,
    }),
  }),
  state: z.object({
    bytes_per_token: bytes,
    fixed_bytes_per_session: bytes,
    bytes_per_session: bytes,
  }),
  experts: z.object({
    total: count,
    slots: count,
    share: share,
    slots_per_token: count,
    layers: z
      .array(z.object({ layer: count, experts: count, disk_bytes: spread, placed_bytes: spread }))
      .max(MAX_LAYERS),
  }),
  traffic: z.object({
    dense_bytes_per_token: bytes,
    expert_bytes_per_token: bytes,
    expert_disk_bytes_per_token: bytes,
    expert_weights_per_token: bytes,
    kv_bytes_per_token: bytes,
    conversation_tokens: count,
    at_hit_rates: z
      .array(z.object({ hit_rate: share, disk_bytes_per_token: bytes, tokens_per_second: range.nullable() }))
      .max(MAX_LINES),
    estimated_hit_rate: z.object({
      low: share,
      likely: share,
      high: share,
      source: z.enum(['replay', 'estimate']),
      replayed_tokens: count,
    }),
  }),
  ceilings: z.object({
    disk: z
      .object({
        direct: speed.nullable(),
        buffered: speed.nullable(),
        record_bytes: bytes,
        depth: count,
        measured: text,
        fresh: z.boolean(),
      })
      .nullable(),
    /** All drives together; null without mirrors. */
    drives: z
      .object({
        declared: z.boolean(),
        bytes_per_second: rate,
        each: z.array(z.object({ directory: text, bytes_per_second: rate, share: share })).max(MAX_DRIVES),
      })
      .nullable()
      .default(null),
    memory: z.object({ bytes_per_second: rate, measured: text, fresh: z.boolean() }).nullable(),
    compute: z
      .object({
        job_us: rate,
        layouts: z.record(
          text,
          z.object({ streamed_bytes_per_second: rate, macs_per_second: rate, batched_macs_per_second: rate }),
        ),
        measured: text,
        fresh: z.boolean(),
      })
      .nullable(),
  }),
  prediction: z
    .object({
      decode_tokens_per_second: range,
      decode_likely_tokens_per_second: rate,
      limited_by: z.enum(['disk', 'memory', 'compute', 'latency']),
      seconds_per_token: z.object({ disk: rate, memory: rate, compute: rate, latency: rate }),
      prefill_tokens_per_second: rate,
      prompt_tokens: count,
      prompt_seconds: rate,
      prefill_limited_by: z.enum(['disk', 'compute']),
    })
    .nullable(),
  concurrency: z.object({
    bytes_per_session: bytes,
    sessions_that_fit: count,
    sessions_without_losing_slots: count,
  }),
  warnings: z
    .array(z.object({ code: z.string().regex(/^[A-Z][A-Z0-9_]*$/), message: text, hint: text }))
    .max(MAX_LINES),
  /** What would help most; null when nothing is known to. */
  next_step: text.nullable(),
  notes: z.array(text).max(MAX_LINES),
});

/** A plan as JSON has it. */
export type PlanFile = z.infer<typeof planSchema>;
export type PlanWarning = PlanFile['warnings'][number];
