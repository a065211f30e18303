/** The chat itself: reads messages, answers them, obeys the commands that start with a colon. */

import { RequestError } from '../common/errors.ts';
import { formatSeconds } from '../common/units.ts';
import type { Activations, ChatMessage, Engine } from '../engine/api.ts';
import { type Answer, streamAnswer } from './answer.ts';
import { Conversation } from './conversation.ts';
import type { Interrupts } from './interrupts.ts';
import type { LineInput } from './line-input.ts';
import { generateOptions, type SamplingFlags } from './options.ts';
import { Progress } from './progress.ts';
import { answerFooter, answerStatistics } from './report.ts';

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
  /** The reply to a command. */
  reply(text: string): void;
  /** The figures under an answer. */
  footer(text: string): void;
  error(error: unknown): void;
  /** True when nobody can read the answers any more. */
  closed(): boolean;
}

export class ChatLoop {
  readonly #engine: Engine;
  readonly #input: LineInput;
  readonly #output: ChatOutput;
  readonly #interrupts: Interrupts;
  readonly #flags: SamplingFlags;
  readonly #conversation: Conversation;
  #last: Answer | null = null;

  constructor(engine: Engine, input: LineInput, output: ChatOutput, interrupts: Interrupts, flags: SamplingFlags) {
    this.#engine = engine;
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
        return this.#last ? answerStatistics(this.#last) : 'There is no answer yet.';
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
    const output = this.#output;
    const messages = this.#conversation.messages(question);
    try {
      await this.#checkRoom(messages);
      let lastChar = '\n';
      const answer = await this.#interrupts.during(signal =>
        streamAnswer(this.#engine, { prompt: { messages }, ...generateOptions(this.#flags) }, signal, {
          onText: text => {
            if (text !== '') lastChar = text.slice(-1);
            output.answer(text);
          },
          progress: new Progress(),
        }),
      );
      if (lastChar !== '\n') output.answer('\n');
      if (output.closed()) return true;
      if (answer.end.text !== '' || answer.end.finishReason !== 'cancelled') {
        this.#conversation.add(question, answer.end.text);
      }
      this.#last = answer;
      output.footer(`[${answerFooter(answer, this.#engine.info.context)}]`);
      return true;
    } catch (error) {
      output.error(error);
      return false;
    }
  }

  async #checkRoom(messages: readonly ChatMessage[]): Promise<void> {
    const { context, maxContext } = this.#engine.info;
    const needed = (await this.#engine.encode({ messages })).length;
    if (needed < context) return;
    const larger = context < maxContext ? `, or start again with --ctx ${Math.min(maxContext, 2 * context)}` : '';
    throw new RequestError(
      'CONTEXT_FULL',
      `this does not fit: the conversation with this message has ${needed} tokens, and the context of ${context} must hold ` +
        'the answer too; the message was not sent and the conversation is kept',
      {
        hint: `take turns back with :undo, forget all with :reset, shorten the message${larger}`,
        details: { needed, context },
      },
    );
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
