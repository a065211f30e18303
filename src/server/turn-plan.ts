/** From a turn to what the engine is asked: the prompt, the form of the answer, and who watches for stop strings. */

import type { ChatFormat, ChatParser, ToolChoice } from '../chat/api.ts';
import { promptTools } from '../chat/prompted-tools.ts';
import { RequestError } from '../common/errors.ts';
import type { GenerateRequest, Prompt } from '../engine/api.ts';
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
  /** False: the client wants none. */
  readonly mayReason: boolean;
  readonly parallelToolCalls: boolean;
  /** Stop strings that only the visible text may match; null where the engine looks for them. */
  readonly stops: StopMatcher | null;
  parser(startsInReasoning: boolean): ChatParser;
}

/** Throws RequestError for what cannot hold together, and for stop strings and tools that cannot be. */
export function planTurn(request: TurnRequest, format: ChatFormat): TurnPlan {
  const { prompt, stop, client: _, format: answerFormat, formatField = 'response_format', ...engineRequest } = request;
  if (prompt.kind === 'text') {
    return {
      prompt: typeof prompt.prompt === 'string' ? { text: prompt.prompt } : { ids: prompt.prompt },
      engineRequest: { ...engineRequest, stop },
      stops: null,
      grammar: answerFormat ?? null,
      grammarField: formatField,
      reasoning: null,
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
    prompt: chatPrompt(prompt, format),
    engineRequest: ownStops ? engineRequest : { ...engineRequest, stop },
    stops: ownStops ? new StopMatcher(stop ?? []) : null,
    grammar: grammarOf(prompt, format, answerFormat),
    grammarField: answerFormat ? formatField : 'tools',
    reasoning: format.reasoning,
    mayReason: prompt.thinking !== false,
    parallelToolCalls,
    parser: startsInReasoning =>
      format.parser({ tools, toolChoice, startsInReasoning, constrained: mustCall(toolChoice) }),
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
export function chatPrompt(turn: ChatTurn, format: ChatFormat): Prompt {
  const { toolChoice, parallelToolCalls, thinking, reasoningEffort } = turn;
  const tools = toolChoice === 'none' ? [] : turn.tools;
  const inTemplate = format.templateTakesTools;
  return {
    messages: inTemplate ? turn.messages : promptTools(turn.messages, tools, toolChoice, parallelToolCalls),
    ...(inTemplate && tools.length > 0 && { tools: tools.map(tool => ({ type: 'function', function: tool })) }),
    variables: {
      ...(thinking !== null && { enable_thinking: thinking }),
      ...(reasoningEffort !== null && { reasoning_effort: reasoningEffort }),
    },
    ...(turn.continueFinal && { continueFinal: true }),
  };
}

function grammarOf(turn: ChatTurn, format: ChatFormat, answerFormat: GrammarSpec | undefined): GrammarSpec | null {
  const { tools, toolChoice, parallelToolCalls } = turn;
  if (mustCall(toolChoice)) return format.forced(tools, toolChoice, parallelToolCalls);
  if (!answerFormat) return null;
  if (!usesTools(turn)) return answerFormat;
  // the model may still call: its answer is calls, or has the format
  return { kind: 'choice', options: [answerFormat, format.forced(tools, 'required', parallelToolCalls)] };
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
