/** POST /tokenize, /detokenize and /apply-template: what the tokenizer and the chat template make of a text, as in llama.cpp. */

import * as z from 'zod';
import { RequestError } from '../../common/errors.ts';
import type { Engine } from '../../engine/api.ts';
import type { RouteParts } from '../app.ts';
import type { App } from '../dialect.ts';
import { conversationOf, Message } from '../dialects/openai-chat-messages.ts';
import { ErrorReply, modelErrors } from '../schemas.ts';

/** Ids in one request; contexts are shorter. */
const MAX_IDS = 1 << 20;
const MAX_MESSAGES = 4096;
const MAX_TOOLS = 512;

const errors = { ...modelErrors, 413: ErrorReply, 415: ErrorReply };

const TokenizeBody = z.object({
  content: z.string(),
  add_special: z.boolean().nullish().describe('Add what the tokenizer puts around a text, such as BOS; default false'),
  parse_special: z.boolean().nullish().describe('Read spellings of control tokens as these; default true'),
  with_pieces: z.boolean().nullish().describe('Tell the text of each token; default false'),
});

const Piece = z.object({
  id: z.int(),
  piece: z.union([z.string(), z.array(z.int())]).describe('Bytes where they are no whole characters'),
});

const ApplyTemplateBody = z.object({
  messages: z.array(Message).min(1).max(MAX_MESSAGES),
  tools: z.array(z.record(z.string(), z.unknown())).max(MAX_TOOLS).nullish(),
  chat_template_kwargs: z.record(z.string(), z.unknown()).nullish().describe('Further variables of the template'),
});

export function textRoutes(app: App, { state }: RouteParts): void {
  const tags = ['Text'];
  app.post(
    '/tokenize',
    {
      schema: {
        tags,
        summary: 'Text to token ids',
        body: TokenizeBody,
        response: { 200: z.object({ tokens: z.union([z.array(z.int()), z.array(Piece)]) }), ...errors },
      },
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
        summary: 'Token ids to text',
        body: z.object({ tokens: z.array(z.int().min(0)).max(MAX_IDS) }),
        response: { 200: z.object({ content: z.string() }), ...errors },
      },
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
        summary: 'Messages to the text of a prompt',
        body: ApplyTemplateBody,
        response: { 200: z.object({ prompt: z.string() }), ...errors },
      },
    },
    async request => {
      const { engine } = state;
      const { tools, chat_template_kwargs: variables } = request.body;
      const { messages, continueFinal } = conversationOf(request.body.messages);
      const prompt = { messages, tools: tools ?? undefined, variables: variables ?? undefined, continueFinal };
      return { prompt: (await engine.render(prompt)).text };
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
  const at = tokens.findIndex(id => id >= vocabSize);
  if (at < 0) return;
  throw new RequestError(
    'BAD_PARAMETER',
    `tokens[${at}] is ${tokens[at]}, but the ids of this model end at ${vocabSize - 1}`,
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
