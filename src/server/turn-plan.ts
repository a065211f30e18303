/** From a turn to what the engine is asked: the prompt, the form of the answer, and who watches for stop strings. */

import type { ChatFormat, ChatParser, ParserOptions, ToolChoice } from '../chat/api.ts';
import { promptTools } from '../chat/prompted-tools.ts';
import { RequestError } from '../common/errors.ts';
import type { ChatMessage, FamilyChat, GenerateRequest, Prompt } from '../engine/api.ts';
import { StopMatcher } from '../engine/stops.ts';
import type { GrammarSpec } from '../grammar/api.ts';
import type { ChatTurn, TurnRequest } from './turn.ts';

export interface TurnPlan {
  readonly prompt: Prompt;
  readonly engineRequest: Omit<GenerateRequest, 'prompt' | 'constraint'>;
  /** What the answer, reasoning apart, must look like. */
  readonly grammar: GrammarSpec | null;
  /** The field of the request that asks for it; errors about it name the field. */
  readonly grammarField: string;
  readonly reasoning: ChatFormat['reasoning'];
  /** See ChatFormat. */
  readonly partMarker: string | null;
  readonly markers: readonly string[];
  /** False: the client wants none. */
  readonly mayReason: boolean;
  readonly parallelToolCalls: boolean;
  /** Stop strings that only the visible text may match; null where the engine looks for them. */
  readonly stops: StopMatcher | null;
  parser(start: AnswerStart): ChatParser;
}

/** Where an answer begins. */
export type AnswerStart = Pick<ParserOptions, 'startsInReasoning' | 'begun'>;

/** Throws RequestError for what cannot hold together, and for stop strings and tools that cannot be. */
export function planTurn(request: TurnRequest, format: ChatFormat, chat: FamilyChat): TurnPlan {
  const { prompt, stop, client: _, format: answerFormat, formatField = 'response_format', ...engineRequest } = request;
  if (prompt.kind === 'text') {
    return {
      prompt: typeof prompt.prompt === 'string' ? { text: prompt.prompt } : { ids: prompt.prompt },
      engineRequest: { ...engineRequest, stop },
      stops: null,
      grammar: answerFormat ?? null,
      grammarField: formatField,
      reasoning: null,
      partMarker: null,
      markers: [],
      mayReason: false,
      parallelToolCalls: true,
      parser: () => new PlainText(),
    };
  }
  const { tools, toolChoice, parallelToolCalls } = prompt;
  checkForm(prompt, answerFormat, formatField);
  // calls and reasoning hold texts of their own, in which a stop string means nothing
  const ownStops = usesTools(prompt) || format.reasoning !== null;
  return {
    prompt: chatPrompt(prompt, format, chat),
    engineRequest: ownStops ? { ...engineRequest, markers: format.markers } : { ...engineRequest, stop },
    stops: ownStops ? new StopMatcher(stop ?? []) : null,
    grammar: grammarOf(prompt, format, answerFormat),
    grammarField: answerFormat ? formatField : 'tools',
    reasoning: format.reasoning,
    partMarker: format.partMarker,
    markers: format.markers,
    // answers in parts always begin with a part of reasoning
    mayReason: prompt.thinking !== false || format.partMarker !== null,
    parallelToolCalls,
    parser: start => format.parser({ tools, toolChoice, ...start, constrained: mustCall(toolChoice) }),
  };
}

function mustCall(choice: ToolChoice): choice is 'required' | { readonly name: string } {
  return choice === 'required' || typeof choice === 'object';
}

function usesTools({ tools, toolChoice }: ChatTurn): boolean {
  return tools.length > 0 && toolChoice !== 'none';
}

function checkForm(
  { toolChoice, continueFinal }: ChatTurn,
  answerFormat: GrammarSpec | undefined,
  formatField: string,
): void {
  const isCall = mustCall(toolChoice);
  if (isCall && answerFormat) {
    const what = `an answer cannot both be a tool call and have the form that ${formatField} asks for`;
    throw conflict('tool_choice', what, `leave out tool_choice or ${formatField}`);
  }
  if (continueFinal && (isCall || answerFormat)) {
    const parameter = isCall ? 'tool_choice' : formatField;
    const what = `an answer whose beginning is given cannot be held to a form, which ${parameter} asks for`;
    throw conflict(parameter, what, `leave out ${parameter}, or end with a message that is not the assistant's`);
  }
}

/** The conversation as the model's template takes it. */
export function chatPrompt(turn: ChatTurn, format: ChatFormat, chat: FamilyChat): Prompt {
  const { toolChoice, parallelToolCalls } = turn;
  const messages = format.readsThinking ? turn.messages.map(withThinking) : turn.messages;
  const tools = toolChoice === 'none' ? [] : turn.tools;
  const inTemplate = format.templateTakesTools;
  if (inTemplate === null && tools.length > 0) {
    const what = 'the chat template of this model takes no tools, and its answers have a form of their own';
    throw new RequestError('TOOLS_UNSUPPORTED', what, {
      hint: 'leave tools out, or use a checkpoint with the chat template of its publisher',
      details: { parameter: 'tools' },
    });
  }
  return {
    messages: inTemplate !== false ? messages : promptTools(messages, tools, toolChoice, parallelToolCalls),
    ...(inTemplate && tools.length > 0 && { tools: tools.map(tool => ({ type: 'function', function: tool })) }),
    variables: thinkingVariables(turn, chat.thinking),
    ...(turn.continueFinal && { continueFinal: true }),
  };
}

/** Beside a call, text and reasoning are one: such a template puts either before the call, and refuses both. */
function withThinking(message: ChatMessage): ChatMessage {
  const { reasoning_content: reasoning, tool_calls: calls, content } = message;
  if (typeof reasoning !== 'string' || reasoning === '') return message;
  if (!Array.isArray(calls) || !content) return { ...message, thinking: reasoning };
  return { ...message, thinking: `${reasoning}\n\n${content}`, content: '' };
}

/**
 * What tells the template how much to reason. Fine-tunes of all families look at `enable_thinking`; a template passes over variables
 * that it does not know.
 */
function thinkingVariables(
  { thinking, reasoningEffort }: ChatTurn,
  { variable, efforts = {}, leastEffort }: FamilyChat['thinking'],
): Record<string, unknown> {
  const asked = reasoningEffort ?? (thinking === false ? leastEffort : undefined);
  return {
    ...(thinking !== null && { enable_thinking: thinking, ...(variable !== null && { [variable]: thinking }) }),
    ...(asked !== undefined && { reasoning_effort: Object.hasOwn(efforts, asked) ? efforts[asked] : asked }),
  };
}

function grammarOf(turn: ChatTurn, format: ChatFormat, answerFormat: GrammarSpec | undefined): GrammarSpec | null {
  const { tools, toolChoice, parallelToolCalls } = turn;
  if (mustCall(toolChoice)) return format.forced(tools, toolChoice, parallelToolCalls);
  if (!answerFormat) return null;
  const held = format.held(answerFormat);
  if (!usesTools(turn)) return held;
  // the model may still call: its answer is calls, or has the format
  return { kind: 'choice', options: [held, format.forced(tools, 'required', parallelToolCalls)] };
}

function conflict(parameter: string, message: string, hint: string): RequestError {
  return new RequestError('FORMAT_CONFLICT', message, { hint, details: { parameter } });
}

/** The answer to a text: all of it is text. */
class PlainText implements ChatParser {
  readonly inReasoning = false;

  push(text: string) {
    return text === '' ? [] : [{ type: 'text', text } as const];
  }

  end() {
    return [];
  }
}
