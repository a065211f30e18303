/** A client that takes one byte of its stream per second. */

import net from 'node:net';
import { APIS } from './serve-client.ts';
import { bodyOf } from './serve-mix.ts';

const BYTE_MS = 1000;
/** As long as the context allows, with as many bytes per token as there can be. */
const OPTIONS = {
  stream: true,
  logprobs: true,
  top_logprobs: 20,
  temperature: 1,
  seed: 1,
  logit_bias: { 4: -100, 0: -100 },
};
const TOKENS = 900;

export interface SlowReader {
  /** Goes away; says what was wrong up to now. */
  stop(): string | null;
}

export function readSlowly(port: number, name: string): SlowReader {
  const body = bodyOf('chat', 'Tell a long story.', TOKENS, OPTIONS);
  const head = [
    `POST ${APIS.chat} HTTP/1.1`,
    'host: 127.0.0.1',
    `user-agent: ${name}`,
    'content-type: application/json',
  ];
  const socket = net.connect({ port, host: '127.0.0.1' });
  let begin = '';
  let problem: string | null = null;
  // without a listener for data the socket is paused, and only what is asked for is taken
  const timer = setInterval(() => {
    const byte: Buffer | null = socket.read(1);
    if (begin.length < 12) begin += byte?.toString('latin1') ?? '';
  }, BYTE_MS);
  socket.on('error', error => {
    problem ??= `slow reader: ${error.message}`;
  });
  socket.write(`${head.join('\r\n')}\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  return {
    stop() {
      clearInterval(timer);
      socket.destroy();
      if (!'HTTP/1.1 200'.startsWith(begin)) problem ??= `slow reader: ${begin}`;
      return problem;
    },
  };
}
