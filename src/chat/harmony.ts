/**
 * gpt-oss: an answer is a row of messages, each with a header of tokens: `<|start|>assistant<|channel|>analysis<|message|>...<|end|>`.
 *
 * - Channel `analysis` is reasoning, `final` is the answer; `commentary` is text for the user, and so is what has no channel.
 * - A header with `to=functions.NAME`, before or behind the channel, makes the message a call; its content are the arguments.
 * - Only tokens are markers: the same characters spelled out are text.
 * - A message that is malformed comes as text, markers spelled out: an unknown tool, arguments that are no object, another role,
 *   a header that is none. A header that the answer's end cuts is dropped.
 * - Between two messages of the same kind stands an empty line.
 */

import type { ChatFormat, ChatParser, ChatPiece, ParserOptions } from './api.ts';
import { CallDraft, type Tools } from './draft.ts';
import { callLanguage, heldLanguage } from './harmony-grammar.ts';
import { Input, type Reading } from './input.ts';
import { readJson } from './json-call.ts';
import { callable } from './parser.ts';
import { Pieces } from './pieces.ts';

const MARKERS = [
  '<|start|>',
  '<|end|>',
  '<|message|>',
  '<|channel|>',
  '<|constrain|>',
  '<|return|>',
  '<|call|>',
] as const;

/** In the text of the parser a marker is half of a surrogate pair: a character that no token spells. */
const FIRST = 0xdc00;
const CHARACTERS: ReadonlyMap<string, string> = new Map(
  MARKERS.map((marker, i) => [marker, String.fromCharCode(FIRST + i)]),
);
const SPELLED = new Map([...CHARACTERS].map(([marker, character]) => [character, marker]));
const [START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL] = MARKERS.map(marker => CHARACTERS.get(marker)!);
/** What ends the content of a message; the next one may begin without it. */
const ENDS = [END, RETURN, CALL];
/** Without the halves of pairs, which come in two. */
const ANY_MARKER = new RegExp(`(?<![\\ud800-\\udbff])[${START}-${CALL}]`);
const ALL_MARKERS = new RegExp(ANY_MARKER, 'g');

const LAST_END = new RegExp(`(?<![\\ud800-\\udbff])[${ENDS.join('')}]$`);

/** Characters of a header: a role, a channel, a tool's name of at most 256, a type. What is longer is none. */
const MAX_HEADER = 400;
/** What may stand before the channel, as far as it goes. */
const ROLE_AND_RECIPIENT = /^\s*(?:a|as|ass|assi|assis|assist|assista|assistan|assistant)?\s*(?:t|to|to=\S*)?\s*$/;
/** What may stand behind it: the channel, a recipient, a type. */
const CHANNEL_PART = /^[^\S\n]*\w*(?:[^\S\n]+(?:t|to|to=\S*))?(?:[^\S\n]+[\w./+-]*)?[^\S\n]*$/;
const TOOL = /(?:^|\s)to=functions\.(\S+)/;

interface Header {
  readonly channel: string;
  /** `to=...`, or null. */
  readonly recipient: string | null;
  readonly tool: string | null;
}

export const HARMONY: ChatFormat = {
  name: 'harmony',
  markers: MARKERS,
  partMarker: '<|start|>',
  reasoning: { open: '<|channel|>analysis<|message|>', close: '<|end|>' },
  templateTakesTools: true,
  parser: options => new HarmonyParser(options),
  forced: callLanguage,
  held: heldLanguage,
};

class HarmonyParser implements ChatParser {
  readonly #input = new Input();
  readonly #tools: Tools;
  readonly #isConstrained: boolean;
  readonly #out = new Pieces();
  readonly #run: Reading<void>;
  #inReasoning = false;
  /** What was given last, and whether its message has ended. */
  #last: ChatPiece['type'] | null = null;
  #hasEnded = false;
  #calls = 0;
  /** The call whose arguments are given while they come. */
  #draft: CallDraft | null = null;
  /** Of the first message, what the prompt has written. */
  #given = 0;

  constructor(options: ParserOptions) {
    this.#tools = callable(options);
    this.#isConstrained = options.constrained ?? false;
    this.#run = this.#answer();
    for (const [text, marker] of options.begun ?? []) {
      this.push(text, marker);
      this.#given += text.length + (marker === undefined ? 0 : 1);
    }
  }

  get inReasoning(): boolean {
    return this.#inReasoning;
  }

  push(text: string, marker?: string): ChatPiece[] {
    const character = marker === undefined ? '' : (CHARACTERS.get(marker) ?? marker);
    this.#input.push(text + character);
    return this.#step();
  }

  end(cut = false): ChatPiece[] {
    this.#input.end(cut);
    return this.#step();
  }

  #step(): ChatPiece[] {
    this.#run.next();
    if (this.#draft) this.#give(this.#draft);
    return this.#out.take();
  }

  *#answer(): Reading<void> {
    while (!(yield* this.#input.atEnd())) yield* this.#message();
  }

  *#message(): Reading<void> {
    const input = this.#input;
    input.mark();
    const header = yield* this.#header();
    if (header === 'cut') {
      // without any token it was an answer that has no header
      const raw = this.#unmark();
      if (!ANY_MARKER.test(raw)) this.#text('text', raw);
      return;
    }
    const tool = header?.tool ?? null;
    if (header === null || (header.recipient !== null && (tool === null || !this.#tools.has(tool)))) {
      this.#text('text', this.#unmark());
      yield* this.#content('text');
    } else if (tool !== null) yield* this.#call(tool);
    else {
      this.#unmark();
      yield* this.#content(header.channel === 'analysis' ? 'reasoning' : 'text');
    }
  }

  /** What the model has written since the mark. */
  #unmark(): string {
    const raw = this.#input.unmark().slice(this.#given);
    this.#given = 0;
    return raw;
  }

  /** Reads up to the content; null when it is no header, 'cut' when the answer ends inside of one. */
  *#header(): Reading<Header | null | 'cut'> {
    const input = this.#input;
    yield* input.literal(START);
    let before = '';
    let behind: string | null = null;
    for (;;) {
      const text = yield* input.some();
      if (text === '') return 'cut';
      const at = text.search(ANY_MARKER);
      const part = input.take(at < 0 ? text.length : at);
      if (behind === null) before += part;
      else behind += part;
      if (!ROLE_AND_RECIPIENT.test(before) || !CHANNEL_PART.test(behind ?? '')) return null;
      if (before.length + (behind ?? '').length > MAX_HEADER) return null;
      if (at < 0) continue;
      if (yield* input.literal(MESSAGE)) return headerOf(before, behind ?? '');
      if (behind === null && (yield* input.literal(CHANNEL))) behind = '';
      else if (behind !== null && (yield* input.literal(CONSTRAIN))) behind += ' ';
      else return null;
    }
  }

  /** Hands on what comes up to the end of the message. */
  *#content(type: 'text' | 'reasoning'): Reading<void> {
    this.#inReasoning = type === 'reasoning';
    yield* this.#untilEnd(part => this.#text(type, part));
    this.#inReasoning = false;
    this.#hasEnded = true;
  }

  /** A call is given when it is whole; where a constraint guarantees it, while it comes. */
  *#call(tool: string): Reading<void> {
    const draft = new CallDraft(this.#tools, this.#calls);
    const parts: string[] = [];
    draft.begin(tool);
    if (this.#isConstrained) this.#draft = draft;
    yield* this.#untilEnd(part => {
      if (this.#isConstrained) draft.add(spelled(part));
      else parts.push(part);
    });
    this.#draft = null;
    const raw = this.#unmark();
    if (!this.#isConstrained) {
      if (!readArguments(spelled(parts.join('')), draft)) {
        this.#text('text', raw.replace(LAST_END, ''));
        this.#hasEnded = true;
        return;
      }
    }
    this.#give(draft);
  }

  /** Gives the parts of a message's content and takes the token that ends it. */
  *#untilEnd(give: (part: string) => void): Reading<void> {
    const input = this.#input;
    for (;;) {
      const text = yield* input.some();
      if (text === '') return;
      const at = text.search(ANY_MARKER);
      if (at !== 0) give(input.take(at < 0 ? text.length : at));
      else if (text[0] === START) return;
      else if (ENDS.includes(text[0])) {
        input.take(1);
        return;
      } else give(input.take(1));
    }
  }

  #text(type: 'text' | 'reasoning', part: string): void {
    if (part === '') return;
    const text = this.#hasEnded && this.#last === type ? `\n\n${spelled(part)}` : spelled(part);
    this.#hasEnded = false;
    this.#last = type;
    this.#out.add({ type, text });
  }

  #give(draft: CallDraft): void {
    for (const piece of draft.drain()) this.#out.add(piece);
    this.#last = 'call';
    this.#calls = draft.firstIndex + draft.count;
  }
}

function headerOf(before: string, behind: string): Header {
  const recipient = /(?:^|\s)to=(\S+)/.exec(before) ?? /(?:^|\s)to=(\S+)/.exec(behind);
  return {
    channel: behind.trim().split(/\s/)[0],
    recipient: recipient ? recipient[1] : null,
    tool: (TOOL.exec(before) ?? TOOL.exec(behind))?.[1] ?? null,
  };
}

/** False when the content is no JSON object; empty means no arguments. */
function readArguments(content: string, draft: CallDraft): boolean {
  const input = new Input();
  input.push(content.trim() === '' ? '{}' : content.trim());
  input.end();
  const json = readJson(input, text => draft.add(text)).next().value;
  return typeof json === 'string' && input.isEmpty && draft.finish();
}

/** Text with its markers as they are written. */
function spelled(text: string): string {
  return text.replace(ALL_MARKERS, character => SPELLED.get(character)!);
}
