/** The text worker: tokenizer and chat template of one model. Started by TextService. */

import { parentPort, workerData } from 'node:worker_threads';
import { errorToWire } from '../common/errors.ts';
import { ChatEncoder } from './chat-encoder.ts';
import { ChatTemplate } from './chat-template.ts';
import type { TextCommand, TextInfo, TextReply, TextWorkerData } from './text-protocol.ts';
import { Tokenizer } from './tokenizer.ts';
import { readTokenizerFile } from './tokenizer-file.ts';

const port = parentPort!;
const reply = (message: TextReply) => port.postMessage(message);

try {
  const { directory, controlStrings, stopTokens } = workerData as TextWorkerData;
  const file = readTokenizerFile(directory);
  const tokenizer = new Tokenizer(file);
  const template = ChatTemplate.load(directory, file.config);
  const chat = new ChatEncoder(tokenizer, template, controlStrings);
  port.on('message', (command: TextCommand) => {
    try {
      reply({ kind: 'value', value: run(tokenizer, chat, command) });
    } catch (error) {
      reply({ kind: 'error', error: errorToWire(error) });
    }
  });
  reply({ kind: 'ready', info: describe(tokenizer, chat, template, stopTokens), tokenBytes: tokenizer.tokenBytes });
} catch (error) {
  reply({ kind: 'error', error: errorToWire(error) });
}

function run(tokenizer: Tokenizer, chat: ChatEncoder, command: TextCommand): unknown {
  switch (command.method) {
    case 'render':
      return chat.render(command.messages, command.tools, command.options);
    case 'encode': {
      const { controlTokens = true, surround = true } = command.options;
      return tokenizer.encode(command.text, { controlTokens, surround });
    }
    case 'decode':
      return tokenizer.decode(command.ids, command.options);
  }
}

function describe(
  tokenizer: Tokenizer,
  chat: ChatEncoder,
  template: ChatTemplate | null,
  stopTokens: readonly string[],
): TextInfo {
  const eosId = tokenizer.specialId('eos_token');
  const endOfTurn = template ? chat.findEndOfTurn() : null;
  const added = tokenizer.addedTokens;
  const stopIds = added.filter(({ content }) => stopTokens.includes(content)).map(({ id }) => id);
  return {
    vocabSize: tokenizer.vocabSize,
    bosId: tokenizer.specialId('bos_token'),
    eosId,
    endOfTurnIds: [...new Set([eosId, endOfTurn, ...stopIds])].filter(id => id !== null),
    specialIds: tokenizer.specialIds,
    hasTemplate: template !== null,
    template: template?.source ?? null,
    addedTokens: added.map(token => token.content),
    addedIds: added.map(token => token.id),
    notes: chat.notes,
  };
}
