/** GET /profile and /experts: where the engine's time goes, and which expert is where. Read from shared memory: the engine is not asked. */

import { createHash } from 'node:crypto';
import type { FastifyReply, FastifyRequest } from 'fastify';
import * as z from 'zod';
import { PHASES, TIERS } from '../../telemetry/fields.ts';
import { EXPERT_TIERS, HISTOGRAM_NAMES } from '../../telemetry/memory.ts';
import { PROFILE_VERSION, profileOf, snake } from '../../telemetry/profile.ts';
import type { TelemetryReader } from '../../telemetry/reader.ts';
import type { RouteParts } from '../app.ts';
import type { App } from '../dialect.ts';
import { modelErrors } from '../schemas.ts';

/** Who asks more often gets the answer before. */
const KEPT_MS = 250;
const HEAT_DIGITS = 3;

const us = z.number().describe('Microseconds');
const counts = z.array(z.number());
const record = <T extends z.ZodType>(names: readonly string[], value: T) =>
  z.object(Object.fromEntries(names.map(name => [name, value])) as Record<string, T>);

const Period = z
  .object({
    steps: z.number(),
    failed_steps: z.number(),
    detailed_steps: z.number().describe('Those whose phases were measured: where steps are short, not all are'),
    rows: z.number(),
    prompt_rows: z.number(),
    decode_rows: z.number(),
    total_us: us,
    wait_us: us,
    phases_us: record(PHASES, us).describe('All time but the wait'),
    experts: record(TIERS, z.object({ hits: z.number(), bytes: z.number() })).extend({ requests: z.number() }),
    disk: z.object({
      reads: z.number(),
      bytes: z.number(),
      bytes_by_drive: counts.describe("The model's own drive, then its mirrors"),
      prefetched: z.number(),
      wasted: z.number(),
      wasted_bytes: z.number(),
      service_us: us,
      overlap_us: us.describe('Service that nobody waited for'),
    }),
  })
  .meta({ id: 'ProfilePeriod' });

const Distribution = z
  .object({
    count: z.number(),
    mean: us.nullable(),
    p50: us.nullable(),
    p90: us.nullable(),
    p99: us.nullable(),
    max: us.nullable(),
  })
  .meta({ id: 'ProfileDistribution' });

const Layers = z
  .object({
    rows: z.number(),
    total_us: counts,
    wait_us: counts,
    requests: counts,
    disk_hits: counts,
    read_bytes: counts,
  })
  .describe('One number per layer, of the detailed steps')
  .meta({ id: 'ProfileLayers' });

const Profile = z
  .object({
    version: z.literal(PROFILE_VERSION),
    prompt: Period.describe('Steps with rows of prompts'),
    decode: Period.describe('Steps that only decode'),
    percentiles: record(HISTOGRAM_NAMES.map(snake), Distribution),
    layers: z.object({ prompt: Layers, decode: Layers }),
    speed: z.null().describe('Phi is not known here: measuring would empty the cache. See coli run --profile'),
    limits: z.null(),
  })
  .meta({ id: 'Profile' });

const ProfileReply = z.object({
  since_start: Profile,
  last_request: Profile.describe('The steps in which the request took part that ended last'),
});

const ExpertsReply = z.object({
  version: z.literal(PROFILE_VERSION),
  experts: z.int().describe('Per layer'),
  in_memory: z.int(),
  pinned: z.int(),
  layers: z
    .array(
      z.object({
        layer: z.int(),
        places: z
          .string()
          .describe('One letter per expert: d on disk, l being read, c in memory, p kept there for good'),
        heat: counts.describe('Uses lately, each counted half after 16,384 tokens; 0 without a history'),
        last_turn: counts.describe('Rows that used the expert since the last request began'),
      }),
    )
    .describe('Those that have experts'),
});

const LETTERS = EXPERT_TIERS.map(name => name[0]);

export function profileRoutes(app: App, { state }: RouteParts): void {
  const profile = kept(telemetry => ({
    since_start: profileOf(telemetry.sums(), null),
    last_request: profileOf(telemetry.lastRequest(), null),
  }));
  const route = (path: string, operationId: string, summary: string, reply: z.ZodType, body: Kept) => {
    const schema = { tags: ['Server'], operationId, summary, response: { 200: reply, ...modelErrors } };
    app.get(path, { schema }, async (request, answer) => sendKept(request, answer, body(state.engine.telemetry)));
  };
  route('/profile', 'getProfile', 'Where the time of the engine goes', ProfileReply, profile);
  route('/experts', 'getExperts', 'Which expert is where, and how hot', ExpertsReply, kept(expertsOf));
}

interface Body {
  readonly text: string;
  readonly etag: string;
}
type Kept = (telemetry: TelemetryReader) => Body;

/** Makes a body at most every KEPT_MS. */
function kept(make: (telemetry: TelemetryReader) => unknown, now: () => number = () => performance.now()): Kept {
  let body: Body | null = null;
  let madeMs = 0;
  return telemetry => {
    if (body && now() - madeMs < KEPT_MS) return body;
    const text = JSON.stringify(make(telemetry));
    body = { text, etag: `"${createHash('sha256').update(text).digest('base64url').slice(0, 22)}"` };
    madeMs = now();
    return body;
  };
}

function sendKept(request: FastifyRequest, reply: FastifyReply, { text, etag }: Body): FastifyReply {
  reply.header('etag', etag).header('cache-control', 'no-cache');
  if (request.headers['if-none-match'] === etag) return reply.code(304).send();
  return reply.type('application/json; charset=utf-8').serializer(String).send(text);
}

function expertsOf({ shape, tiers, heat, turnUses }: TelemetryReader): z.infer<typeof ExpertsReply> {
  const { experts, moeLayers } = shape;
  const count = (tier: number) => tiers.reduce((sum, value) => sum + (value === tier ? 1 : 0), 0);
  const pinned = count(EXPERT_TIERS.indexOf('pinned'));
  return {
    version: PROFILE_VERSION,
    experts,
    in_memory: pinned + count(EXPERT_TIERS.indexOf('cached')),
    pinned,
    layers: moeLayers.map(layer => {
      const of = <T extends ArrayLike<number>>(values: T) =>
        Array.from({ length: experts }, (_, expert) => values[layer * experts + expert]);
      return {
        layer,
        places: of(tiers)
          .map(tier => LETTERS[tier])
          .join(''),
        heat: of(heat).map(value => Number(value.toPrecision(HEAT_DIGITS))),
        last_turn: of(turnUses),
      };
    }),
  };
}
