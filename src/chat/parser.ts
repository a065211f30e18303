/**
 * Takes an answer apart while it comes: reasoning, text, calls. The rules:
 *
 * - A block of reasoning stands at the beginning, or nowhere: later tags are text. White space at its edges is dropped. A closing
 *   tag without a block is not shown; what came before it has been given as text.
 * - A call is given when it is whole, because what turns out to be malformed is text. Only where a constraint guarantees the call
 *   it is given while it comes. White space before a call is dropped.
 * - In code (a fence, backticks) nothing is a call. Neither is a call of an unknown tool, nor any with tool_choice none.
 * - An unfinished call counts when only closing tags can be missing.
 * - Calls at the very end of a block of reasoning that was never closed are calls: the model forgot the tag.
 */

import type { ChatFormat, ChatParser, ChatPiece, ParserOptions } from './api.ts';
import { CallDraft, type Tools } from './draft.ts';
import { Input, type Reading } from './input.ts';
import { Pieces } from './pieces.ts';
import { Quotes } from './quotes.ts';
import type { CallSyntax } from './syntax.ts';

/**
 * What follows the opening tag of something that is no call is read again, because a call may stand in it. An answer made of
 * thousands of opening tags would be read as often; after so many failures what was read is text without a second look.
 */
const MAX_REREADS = 32;

export class AnswerParser implements ChatParser {
  readonly #input = new Input();
  readonly #syntax: CallSyntax;
  readonly #options: ParserOptions;
  readonly #tools: Tools;
  readonly #run: Reading<void>;
  readonly #out = new Pieces();
  #inReasoning: boolean;
  /** White space that is dropped if a call or the end of the reasoning follows. */
  #held = '';
  #quotes = new Quotes();
  #calls = 0;
  #callWasLast = false;
  #rereads = 0;
  /** The call that is being read. */
  #draft: CallDraft | null = null;

  constructor(syntax: CallSyntax, reasoning: ChatFormat['reasoning'], options: ParserOptions) {
    this.#syntax = syntax;
    this.#options = options;
    this.#tools = callable(options);
    this.#inReasoning = reasoning !== null && options.startsInReasoning;
    this.#run = this.#answer(reasoning);
  }

  get inReasoning(): boolean {
    return this.#inReasoning;
  }

  /** Markers are tags like any other: spelled out in ordinary tokens they mean the same. */
  push(text: string, marker = ''): ChatPiece[] {
    this.#input.push(text + marker);
    return this.#step();
  }

  end(cut = false): ChatPiece[] {
    this.#input.end(cut);
    return this.#step();
  }

  #step(): ChatPiece[] {
    this.#run.next();
    if (this.#options.constrained && this.#draft) this.#give(this.#draft);
    return this.#out.take();
  }

  *#answer(reasoning: ChatFormat['reasoning']): Reading<void> {
    let stray: string[] = [];
    if (reasoning !== null) {
      const hasBlock = yield* this.#reasoning(reasoning);
      if (!hasBlock) stray = [reasoning.close, reasoning.open];
      else this.#quotes = new Quotes();
    }
    if (this.#tools.size > 0 && this.#opens.length === 0) yield* this.#attempt('');
    for (;;) {
      const tag = yield* this.#input.until([...this.#opens, ...stray], part => this.#text(part));
      if (tag === null) break;
      if (stray.includes(tag)) {
        const isClosing = tag === stray[0];
        stray = [];
        if (!isClosing || this.#quotes.inside) this.#text(tag);
      } else if (this.#quotes.inside) this.#text(tag);
      else yield* this.#attempt(tag);
    }
    // white space behind the last call is no text
    if (!this.#callWasLast) this.#flush('text');
  }

  get #opens(): readonly string[] {
    return this.#tools.size > 0 ? this.#syntax.opens : [];
  }

  /** Reads the call behind `open`, which becomes pieces or text. */
  *#attempt(open: string): Reading<void> {
    const draft = new CallDraft(this.#tools, this.#calls);
    this.#input.mark();
    this.#draft = draft;
    const isCall = yield* this.#syntax.read(this.#input, draft, open);
    this.#draft = null;
    const raw = this.#input.unmark();
    if (isCall) this.#give(draft);
    else if (this.#calls === draft.firstIndex) this.#noCall(open, raw, 'text');
  }

  /** Something that only began like a call: the tag is text, what follows is looked at again. */
  #noCall(open: string, raw: string, type: 'text' | 'reasoning'): void {
    if (open !== '' && ++this.#rereads <= MAX_REREADS) {
      this.#text(open, type);
      this.#input.unread(raw);
    } else this.#text(open + raw, type);
  }

  /** Hands on what is there of the calls of a draft. */
  #give(draft: CallDraft): void {
    const pieces = draft.drain();
    if (pieces.length === 0) return;
    this.#held = '';
    for (const piece of pieces) this.#emit(piece);
    this.#calls = draft.firstIndex + draft.count;
  }

  /** Reads the block of reasoning at the beginning; false when there is none. */
  *#reasoning({ open, close }: { open: string; close: string }): Reading<boolean> {
    const input = this.#input;
    // where the prompt opened the block some models do it again
    const opened = yield* input.spaceThen(open);
    if (!opened && !this.#inReasoning) return false;
    this.#inReasoning = true;
    yield* input.space();
    for (;;) {
      const tag = yield* input.until([close, ...this.#opens], part => this.#text(part, 'reasoning'));
      if (tag === null) {
        this.#flush('reasoning');
        return true;
      }
      if (tag === close) break;
      if (this.#quotes.inside) this.#text(tag, 'reasoning');
      else yield* this.#unclosed(tag);
    }
    this.#inReasoning = false;
    this.#held = '';
    yield* input.space();
    return true;
  }

  /** A call inside the reasoning: meant if nothing but calls follows until the end. */
  *#unclosed(first: string): Reading<void> {
    const input = this.#input;
    const draft = new CallDraft(this.#tools, this.#calls);
    input.mark();
    let open: string | null = first;
    let areCalls = true;
    while (areCalls && open !== null) {
      areCalls = yield* this.#syntax.read(input, draft, open);
      yield* input.space();
      open = null;
      for (const tag of this.#opens) if (open === null && (yield* input.literal(tag))) open = tag;
    }
    areCalls &&= yield* input.atEnd();
    const raw = input.unmark();
    if (areCalls) {
      this.#inReasoning = false;
      this.#give(draft);
    } else this.#noCall(first, raw, 'reasoning');
  }

  #text(part: string, type: 'text' | 'reasoning' = 'text'): void {
    this.#quotes.see(part);
    const length = part.trimEnd().length;
    // only white space: what is held stays held
    if (length > 0) {
      this.#emit({ type, text: this.#held + part.slice(0, length) });
      this.#held = '';
    }
    this.#held += part.slice(length);
    if (type === 'text' && this.#tools.size === 0) this.#flush('text');
  }

  #flush(type: 'text' | 'reasoning'): void {
    if (this.#held !== '') this.#emit({ type, text: this.#held });
    this.#held = '';
  }

  #emit(piece: ChatPiece): void {
    this.#callWasLast = 'index' in piece;
    this.#out.add(piece);
  }
}

/** Tools that a call may name. */
export function callable({ tools, toolChoice }: ParserOptions): Tools {
  if (toolChoice === 'none') return new Map();
  const named = typeof toolChoice === 'object' ? tools.filter(({ name }) => name === toolChoice.name) : tools;
  return new Map(named.map(tool => [tool.name, tool]));
}
