/** GET /props: the settings in force, whichever flag, file or default they came from. */

import * as z from 'zod';
import type { RouteParts } from '../app.ts';
import type { App } from '../dialect.ts';
import { modelErrors } from '../schemas.ts';

const Props = z.object({
  default_generation_settings: z
    .object({
      n_ctx: z.int(),
      params: z.object({
        temperature: z.number(),
        top_p: z.number(),
        top_k: z.int(),
        min_p: z.number(),
        repetition_penalty: z.number(),
        presence_penalty: z.number(),
        frequency_penalty: z.number(),
        max_tokens: z.int(),
      }),
    })
    .describe('What a request gets that asks for nothing, after generation_config.json'),
  total_slots: z.int(),
  model: z.string(),
  family: z.string(),
  context: z.int(),
  max_context: z.int(),
  kv: z.string(),
  kernels: z.string(),
  activations: z.string(),
  threads: z.int(),
  expert_slots: z.int(),
  policy: z.string(),
  prefetch: z.string(),
  io: z.enum(['direct', 'buffered']),
  usage: z
    .object({ mode: z.enum(['on', 'read', 'off', 'file']), tokens: z.int() })
    .describe('The history of use with which the model was opened'),
  planned_bytes: z.number().describe('What the whole process may hold'),
  fingerprint: z.string().describe('Servers with equal ones give equal bytes for equal requests'),
  has_chat_template: z.boolean(),
  chat_template: z.string().nullable(),
  max_queue: z.int(),
  queue_timeout_seconds: z.number(),
  build_info: z.string(),
  notes: z.array(z.string()),
});

/** Any prompt: only the settings of the prepared request are looked at. */
const SOME_PROMPT = { ids: [0] };

export function propsRoute(app: App, { settings, state }: RouteParts): void {
  app.get(
    '/props',
    {
      schema: {
        tags: ['Server'],
        operationId: 'getProps',
        summary: 'The settings in force',
        response: { 200: Props, ...modelErrors },
      },
    },
    async () => {
      const { engine, runner } = state;
      const { info, text } = engine;
      const prepared = await engine.prepare({ prompt: SOME_PROMPT });
      prepared.discard();
      const { sampling } = prepared;
      return {
        default_generation_settings: {
          n_ctx: info.context,
          params: {
            temperature: sampling.temperature,
            top_p: sampling.topP,
            top_k: sampling.topK,
            min_p: sampling.minP,
            repetition_penalty: sampling.repetitionPenalty,
            presence_penalty: sampling.presencePenalty,
            frequency_penalty: sampling.frequencyPenalty,
            max_tokens: sampling.maxTokens,
          },
        },
        total_slots: info.slots,
        model: settings.modelId,
        family: info.family,
        context: info.context,
        max_context: info.maxContext,
        kv: info.kv,
        kernels: info.kernels,
        activations: info.activations,
        threads: info.threads,
        expert_slots: info.plan.expertSlots,
        policy: info.policy,
        prefetch: info.prefetch,
        io: info.directIo ? ('direct' as const) : ('buffered' as const),
        usage: info.usage,
        planned_bytes: info.plan.total,
        fingerprint: runner.fingerprint,
        has_chat_template: text.hasTemplate,
        chat_template: text.template,
        max_queue: settings.maxQueue,
        queue_timeout_seconds: settings.queueTimeoutMs / 1000,
        build_info: `colibri ${settings.version}`,
        notes: info.notes,
      };
    },
  );
}
