/** POST /tokenize, /detokenize and /apply-template: what the tokenizer and the chat template make of a text, as in llama.cpp. */

import * as z from 'zod';
import { RequestError } from '../../common/errors.ts';
import { shown } from '../../common/shown.ts';
import type { Engine } from '../../engine/api.ts';
import type { RouteParts } from '../app.ts';
import { requireModel } from '../context.ts';
import type { App } from '../dialect.ts';
import { parseBody } from '../dialects/openai-body.ts';
import { ChatBody, chatPromptTurn, parseChat } from '../dialects/openai-chat-request.ts';
import { flag, text } from '../dialects/openai-fields.ts';
import { bodyParser } from '../dialects/route-body.ts';
import { ErrorReply, modelErrors } from '../schemas.ts';

/** Ids in one request; contexts are shorter. */
const MAX_IDS = 1 << 20;

const errors = { ...modelErrors, 413: ErrorReply, 415: ErrorReply };

const TokenizeBody = z.looseObject({
  content: text(),
  add_special: flag().nullish().describe('Add what the tokenizer puts around a text, such as BOS; default false'),
  parse_special: flag().nullish().describe('Read spellings of control tokens as these; default true'),
  with_pieces: flag().nullish().describe('Tell the text of each token; default false'),
});

const Piece = z.object({
  id: z.int(),
  piece: z.union([z.string(), z.array(z.int())]).describe('Bytes where they are no whole characters'),
});

const tokensMessage = `must be an array of at most ${MAX_IDS} token ids`;
const DetokenizeBody = z.looseObject({
  tokens: z
    .custom<number[]>(value => Array.isArray(value) && value.length <= MAX_IDS, { error: tokensMessage })
    .meta({ type: 'array', maxItems: MAX_IDS, items: { type: 'integer', minimum: 0 } })
    .describe('Token ids'),
});

const parsed = (schema: z.ZodType) => bodyParser(body => parseBody(schema, body, {}));

export function textRoutes(app: App, { state, settings }: RouteParts): void {
  const tags = ['Text'];
  app.post(
    '/tokenize',
    {
      schema: {
        tags,
        operationId: 'tokenize',
        summary: 'Text to token ids',
        body: TokenizeBody,
        response: { 200: z.object({ tokens: z.union([z.array(z.int()), z.array(Piece)]) }), ...errors },
      },
      validatorCompiler: parsed(TokenizeBody),
    },
    async request => {
      const { engine } = state;
      const { content, with_pieces } = request.body;
      if (request.body.parse_special === false) requireNoControls(content, engine);
      const surrounded = await engine.encode({ text: content });
      const tokens = request.body.add_special ? surrounded : without(await engine.encode({ text: '' }), surrounded);
      return { tokens: with_pieces ? tokens.map(id => ({ id, piece: pieceOf(engine.tokenBytes(id)) })) : tokens };
    },
  );
  app.post(
    '/detokenize',
    {
      schema: {
        tags,
        operationId: 'detokenize',
        summary: 'Token ids to text',
        body: DetokenizeBody,
        response: { 200: z.object({ content: z.string() }), ...errors },
      },
      validatorCompiler: parsed(DetokenizeBody),
    },
    async request => {
      const { engine } = state;
      const { tokens } = request.body;
      requireIds(tokens, engine.info.vocabSize);
      return { content: await engine.decode(tokens) };
    },
  );
  app.post(
    '/apply-template',
    {
      schema: {
        tags,
        operationId: 'applyTemplate',
        summary: 'The text of the prompt of a chat completion',
        description: 'Takes the body of one; only the fields that make its prompt matter.',
        body: ChatBody,
        response: { 200: z.object({ prompt: z.string() }), ...errors },
      },
      validatorCompiler: bodyParser(parseChat),
    },
    async ({ body }) => {
      requireModel(body.model, settings);
      return { prompt: await state.runner.promptText(chatPromptTurn(body)) };
    },
  );
}

/** The ids of a text without those that the tokenizer puts around every text: as many from its front as match. */
function without(around: readonly number[], ids: readonly number[]): number[] {
  let front = 0;
  while (front < around.length && ids[front] === around[front]) front++;
  return ids.slice(front, ids.length - (around.length - front));
}

/** The tokenizer always knows control tokens; without any in the text, it makes no difference. */
function requireNoControls(content: string, { text }: Engine): void {
  const found = text.addedTokens.find(token => content.includes(token));
  if (found === undefined) return;
  throw new RequestError('UNSUPPORTED_PARAMETER', `parse_special: false is not done for text with ${found}`, {
    hint: 'leave parse_special out, or remove the control token',
    details: { parameter: 'parse_special' },
  });
}

function requireIds(tokens: readonly number[], vocabSize: number): void {
  const at = tokens.findIndex(id => !Number.isSafeInteger(id) || id < 0 || id >= vocabSize);
  if (at < 0) return;
  throw new RequestError(
    'BAD_PARAMETER',
    `tokens[${at}] is ${shown(tokens[at])}, but the ids of this model are whole numbers from 0 to ${vocabSize - 1}`,
    {
      hint: 'send ids that /tokenize or an answer gave',
      details: { parameter: `tokens[${at}]` },
    },
  );
}

function pieceOf(bytes: Uint8Array): string | number[] {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return [...bytes];
  }
}
