/** Reads answers of the four APIs and says what is wrong with their form: a stream must end as its API says, and only once. */

import type { Api } from './serve-client.ts';

export interface AnswerReader {
  /** The status was not 200: the body is an error's. */
  isError: boolean;
  /** The beginning of the body, for messages about it. */
  readonly raw: string;
  readonly text: string;
  /** Pieces of text so far; an answer that is not streamed has one at its end. */
  readonly pieces: number;
  /** Tokens of the answer as its usage tells; 0 until then. */
  readonly tokens: number;
  push(chunk: string): void;
  /** What is wrong with the whole; null when nothing is. */
  end(): string | null;
}

/** Characters of a body that is only quoted. */
const RAW_CHARACTERS = 2000;

/** A decoded event, loosely typed: every API has its own. */
// biome-ignore lint/suspicious/noExplicitAny: what a server sends can be anything
type Data = any;

export function readerOf(api: Api, stream: boolean): AnswerReader {
  return stream ? new StreamReader(api) : new WholeReader(api);
}

abstract class Reader implements AnswerReader {
  readonly api: Api;
  isError = false;
  raw = '';
  text = '';
  pieces = 0;
  tokens = 0;

  constructor(api: Api) {
    this.api = api;
  }

  push(chunk: string): void {
    if (this.raw.length < RAW_CHARACTERS) this.raw += chunk;
  }

  abstract end(): string | null;

  protected add(text: string | undefined): void {
    if (text === undefined || text === '') return;
    this.text += text;
    this.pieces++;
  }
}

class WholeReader extends Reader {
  #body = '';

  override push(chunk: string): void {
    super.push(chunk);
    this.#body += chunk;
  }

  end(): string | null {
    const body = parse(this.#body);
    if (body === null) return `the body is no JSON: ${this.raw.slice(0, 100)}`;
    if (this.isError) return typeof body.error?.message === 'string' ? null : 'an error without a message';
    this.tokens = WHOLE[this.api].tokens(body);
    this.add(WHOLE[this.api].text(body));
    return Number.isInteger(this.tokens) ? null : 'no usage';
  }
}

const WHOLE: Record<Api, { text(body: Data): string; tokens(body: Data): number }> = {
  chat: { text: body => body.choices[0].message.content, tokens: body => body.usage.completion_tokens },
  completions: { text: body => body.choices[0].text, tokens: body => body.usage.completion_tokens },
  messages: {
    text: body => body.content.map((block: Data) => block.text).join(''),
    tokens: body => body.usage.output_tokens,
  },
  responses: {
    text: body => body.output.flatMap((item: Data) => item.content.map((part: Data) => part.text)).join(''),
    tokens: body => body.usage.output_tokens,
  },
};

class StreamReader extends Reader {
  #rest = '';
  #body = '';
  #done = 0;
  #finishes = 0;
  #events = 0;
  #problem: string | null = null;

  override push(chunk: string): void {
    super.push(chunk);
    if (this.isError) {
      this.#body += chunk;
      return;
    }
    const blocks = (this.#rest + chunk).split('\n\n');
    this.#rest = blocks.pop()!;
    for (const block of blocks) this.#block(block);
  }

  end(): string | null {
    if (this.isError)
      return typeof parse(this.#body)?.error?.message === 'string' ? null : 'an error without a message';
    if (this.#problem !== null) return this.#problem;
    if (this.#rest !== '') return 'the stream ends inside an event';
    if (this.#finishes !== 1) return `the stream has ${this.#finishes} ends`;
    const wanted = this.api === 'messages' ? 0 : 1;
    return this.#done === wanted ? null : `the stream has ${this.#done} [DONE]`;
  }

  #block(block: string): void {
    if (block.startsWith(':')) return;
    const line = block.split('\n').find(one => one.startsWith('data: '));
    if (line === undefined || this.#done > 0) this.#wrong(`out of place: ${block.slice(0, 100)}`);
    else if (line === 'data: [DONE]') this.#done++;
    else this.#event(parse(line.slice('data: '.length)), line);
  }

  #event(data: Data | null, line: string): void {
    if (data === null || data.error || data.type === 'error')
      this.#wrong(`an event of an error: ${line.slice(0, 300)}`);
    else STREAM[this.api](data, this);
  }

  #wrong(problem: string): void {
    this.#problem ??= problem;
  }

  piece(text: string | undefined): void {
    this.add(text);
  }

  finish(): void {
    this.#finishes++;
  }

  usage(tokens: number): void {
    this.tokens = tokens;
  }

  numbered(sequence: number): void {
    if (sequence !== this.#events++) this.#wrong(`event ${sequence} comes as number ${this.#events - 1}`);
  }
}

const STREAM: Record<Api, (data: Data, reader: StreamReader) => void> = {
  chat: (data, reader) => openAi(data, data.choices[0]?.delta.content, reader),
  completions: (data, reader) => openAi(data, data.choices[0]?.text, reader),
  messages(data, reader) {
    if (data.type === 'content_block_delta') reader.piece(data.delta.text);
    if (data.type === 'message_delta') reader.usage(data.usage.output_tokens);
    if (data.type === 'message_stop') reader.finish();
  },
  responses(data, reader) {
    reader.numbered(data.sequence_number);
    if (data.type === 'response.output_text.delta') reader.piece(data.delta);
    if (data.type !== 'response.completed' && data.type !== 'response.incomplete') return;
    reader.usage(data.response.usage.output_tokens);
    reader.finish();
  },
};

function openAi(data: Data, text: string | undefined, reader: StreamReader): void {
  reader.piece(text);
  if (data.choices[0]?.finish_reason) reader.finish();
  if (data.usage) reader.usage(data.usage.completion_tokens);
}

function parse(text: string): Data | null {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
