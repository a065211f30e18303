/** The chat itself: reads messages, answers them, obeys the commands that start with a colon. */

import { InternalError } from '../common/errors.ts';
import { formatSeconds } from '../common/units.ts';
import type { Activations } from '../engine/api.ts';
import { Conversation } from './conversation.ts';
import type { Interrupts } from './interrupts.ts';
import type { LineInput } from './line-input.ts';
import { generateOptions, type SamplingFlags } from './options.ts';
import { Progress } from './progress.ts';
import type { TalkEnd, Talker } from './talker.ts';

const COMMANDS = [':help', ':stats', ':undo', ':reset', ':quit'];

export const HELP = [
  ':help   this list',
  ':stats  figures of the last answer',
  ':undo   forget the last question and answer',
  ':reset  forget the whole conversation',
  ':quit   leave (as Ctrl-D does)',
  'Ctrl-C stops an answer; pressed again it leaves. A pasted text of several lines is one message.',
  'To send a message that starts with a colon and a letter, put a space before it.',
].join('\n');

export interface ChatOutput {
  /** Text of the model. */
  answer(text: string): void;
  /** What it thinks before it answers. */
  reasoning(text: string): void;
  /** The reply to a command. */
  reply(text: string): void;
  /** The figures under an answer, and what happens on the way to it. */
  footer(text: string): void;
  error(error: unknown): void;
  /** True when nobody can read the answers any more. */
  closed(): boolean;
}

export class ChatLoop {
  readonly #talker: Talker;
  readonly #input: LineInput;
  readonly #output: ChatOutput;
  readonly #interrupts: Interrupts;
  readonly #flags: SamplingFlags;
  readonly #conversation: Conversation;
  #last: string | null = null;

  constructor(talker: Talker, input: LineInput, output: ChatOutput, interrupts: Interrupts, flags: SamplingFlags) {
    this.#talker = talker;
    this.#input = input;
    this.#output = output;
    this.#interrupts = interrupts;
    this.#flags = flags;
    this.#conversation = new Conversation(flags.system);
  }

  /** Until :quit or the end of the input. Returns false when a message from a pipe failed or was no command. */
  async run(): Promise<boolean> {
    let fine = true;
    while (!this.#output.closed()) {
      const message = await this.#input.next();
      if (message === null || message.trimEnd() === ':quit') break;
      if (message.trim() === '') continue;
      if (/^:[a-z]/i.test(message)) fine = this.#obey(message.trimEnd()) && fine;
      else fine = (await this.#answer(message)) && fine;
    }
    return fine || this.#input.interactive;
  }

  /** Obeys a command and says so; false when there is no such command: it is not sent to the model either. */
  #obey(line: string): boolean {
    const reply = this.#replyTo(line);
    this.#output.reply(reply ?? noCommand(line));
    return reply !== null;
  }

  #replyTo(command: string): string | null {
    const conversation = this.#conversation;
    switch (command) {
      case ':help':
        return HELP;
      case ':stats':
        return this.#last ?? 'There is no answer yet.';
      case ':undo':
        if (!conversation.undo()) return 'There is nothing to take back.';
        return `Took the last turn back; ${conversation.turns} left.`;
      case ':reset':
        conversation.reset();
        return 'Forgot the conversation.';
      default:
        return null;
    }
  }

  /** Answers one message; an answer that was cut short stays in the conversation as far as it came. */
  async #answer(question: string): Promise<boolean> {
    const shown = new ShownAnswer(this.#output);
    try {
      const end = await this.#interrupts.during(signal => this.#follow(question, shown, signal));
      if (end === null) return true;
      // what was stopped before its first letter has not been answered
      if (shown.text !== '' || end.finish === 'stop' || end.finish === 'length') {
        this.#conversation.add(question, shown.text, shown.reasoning);
      }
      this.#last = end.statistics;
      if (end.finish === 'broken') this.#output.error(end.error);
      this.#output.footer(`[${end.footer}]`);
      return end.finish !== 'broken';
    } catch (error) {
      this.#output.error(error);
      return false;
    }
  }

  /** Shows an answer while it comes; null when nobody reads it any more. */
  async #follow(question: string, shown: ShownAnswer, signal: AbortSignal): Promise<TalkEnd | null> {
    const messages = this.#conversation.messages(question);
    const progress = new Progress();
    try {
      for await (const event of this.#talker.ask(messages, generateOptions(this.#flags), signal)) {
        if (event.type === 'progress') {
          progress.update(event.label, event.done, event.total, event.amount, event.etaMs);
          continue;
        }
        progress.clear();
        if (event.type === 'notice') {
          shown.endLine();
          this.#output.footer(event.text);
        } else if (event.type !== 'end') shown.add(event.type, event.text);
        if (this.#output.closed()) return null;
        if (event.type === 'end') return event;
      }
    } finally {
      progress.clear();
      shown.endLine();
    }
    throw new InternalError('NO_END', 'an answer ended without saying so');
  }
}

/** The letters of an answer on their way out: reasoning first, then the text on a line of its own. */
class ShownAnswer {
  readonly #output: ChatOutput;
  text = '';
  reasoning = '';
  /** Where the line is that has not ended. */
  #open: 'text' | 'reasoning' | null = null;

  constructor(output: ChatOutput) {
    this.#output = output;
  }

  add(kind: 'text' | 'reasoning', piece: string): void {
    if (piece === '') return;
    if (this.#open !== kind) this.endLine();
    this[kind] += piece;
    this.#open = piece.endsWith('\n') ? null : kind;
    this.#write(kind, piece);
  }

  /** So that what follows has a line of its own. */
  endLine(): void {
    if (this.#open !== null) this.#write(this.#open, '\n');
    this.#open = null;
  }

  #write(kind: 'text' | 'reasoning', piece: string): void {
    this.#output[kind === 'text' ? 'answer' : 'reasoning'](piece);
  }
}

function noCommand(line: string): string {
  const [command] = line.split(/\s/);
  const what = COMMANDS.includes(command) ? `${command} takes nothing after it` : `There is no command ${command}`;
  return `${what}; nothing was sent. :help lists the commands; a space before the colon makes it a message.`;
}

export function readyLine(seconds: number, residentBytes: string, activations: Activations): string {
  const numbers = activations === 'int8' ? '' : `, ${activations} activations`;
  return `ready in ${formatSeconds(seconds)}, ${residentBytes} in memory${numbers}; :help lists the commands`;
}
