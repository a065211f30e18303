/** GET /v1/models and /v1/models/{model}: the one model that is served, in the shape of the API that asks. */

import * as z from 'zod';
import type { RouteParts } from '../app.ts';
import { unknownModel } from '../context.ts';
import type { App } from '../dialect.ts';
import { ErrorReply, modelErrors } from '../schemas.ts';

const OpenAiModel = z
  .object({
    id: z.string(),
    object: z.literal('model'),
    created: z.int().describe('Seconds since 1970 at which the server started'),
    owned_by: z.string(),
    context_length: z.int().describe('Tokens of prompt and answer together'),
    max_context_length: z.int().describe('What the model itself could hold'),
    family: z.string(),
    vocab_size: z.int(),
    parameters: z.number(),
    kv: z.string().describe('How keys and values are kept'),
    chat: z.boolean().describe('Whether it has a chat template'),
  })
  .meta({ id: 'Model' });

const AnthropicModel = z
  .object({
    type: z.literal('model'),
    id: z.string(),
    display_name: z.string(),
    created_at: z.string(),
  })
  .meta({ id: 'AnthropicModel' });

const OpenAiList = z.object({ object: z.literal('list'), data: z.array(OpenAiModel) });
const AnthropicList = z.object({
  data: z.array(AnthropicModel),
  has_more: z.boolean(),
  first_id: z.string(),
  last_id: z.string(),
});

export function modelRoutes(app: App, { settings, state }: RouteParts): void {
  const started = new Date();
  const ids = [settings.modelId, ...settings.modelAliases];
  const openAi = (id: string): z.output<typeof OpenAiModel> => {
    const { info, text } = state.engine;
    return {
      id,
      object: 'model',
      created: Math.floor(started.getTime() / 1000),
      owned_by: 'colibri',
      context_length: info.context,
      max_context_length: info.maxContext,
      family: info.family,
      vocab_size: info.vocabSize,
      parameters: info.parameters,
      kv: info.kv,
      chat: text.hasTemplate,
    };
  };
  const anthropic = (id: string): z.output<typeof AnthropicModel> => ({
    type: 'model',
    id,
    display_name: id,
    created_at: started.toISOString(),
  });
  const anthropicList = (): z.output<typeof AnthropicList> => ({
    data: ids.map(anthropic),
    has_more: false,
    first_id: settings.modelId,
    last_id: ids[ids.length - 1],
  });

  app.get(
    '/v1/models',
    {
      schema: {
        tags: ['Models'],
        operationId: 'listModels',
        summary: 'The model that is served, under each of its names',
        description: 'In the shape of the Anthropic API for requests with the header anthropic-version.',
        response: { 200: z.union([OpenAiList, AnthropicList]), ...modelErrors },
      },
    },
    async request => {
      const data = ids.map(openAi);
      return 'anthropic-version' in request.headers ? anthropicList() : { object: 'list' as const, data };
    },
  );
  app.get(
    '/v1/models/:model',
    {
      schema: {
        tags: ['Models'],
        operationId: 'getModel',
        summary: 'One model by its id',
        params: z.object({ model: z.string() }),
        response: { 200: z.union([OpenAiModel, AnthropicModel]), 404: ErrorReply, ...modelErrors },
      },
    },
    async request => {
      const { model: id } = request.params;
      const model = openAi(id);
      if (!ids.includes(id)) throw unknownModel(id, settings.modelId);
      return 'anthropic-version' in request.headers ? anthropic(id) : model;
    },
  );
}
