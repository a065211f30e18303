/** A request of the OpenAI Responses API as a turn. Throws RequestErrors that name the field. */

import { shown } from '../../common/shown.ts';
import { checkSampling } from '../../engine/sampling-options.ts';
import type { GrammarSpec, JsonSchema } from '../../grammar/api.ts';
import type { ChatTurn, TurnRequest } from '../turn.ts';
import { asNot, badField, unsupported } from './openai-body.ts';
import { samplingOf, withoutNulls } from './openai-fields.ts';
import { CHAT_HINTS, type UnsupportedFields, unsupportedFields } from './openai-unsupported.ts';
import { readInput } from './responses-history.ts';
import type { ResponsesBody } from './responses-schema.ts';

const keepsNothing = 'no conversation is kept here: send all of it in input';
const leaveOut = 'leave it out';

/** Fields with a meaning that this server does not have, and what to do instead. */
export const RESPONSES_UNSUPPORTED: UnsupportedFields = {
  ...unsupportedFields({
    ...CHAT_HINTS,
    conversation: 'use input',
    system: 'use instructions',
    maxTokens: 'use max_output_tokens',
    form: 'use text.format, grammar or regex',
    thinking: 'use reasoning.effort',
    effort: 'use reasoning.effort',
    logprobs: 'use top_logprobs',
  }),
  store: { neutral: [false], hint: 'answers are not kept: leave it out, or say false' },
  previous_response_id: { neutral: [], hint: keepsNothing },
  conversation: { neutral: [], hint: keepsNothing },
  prompt: { neutral: [], hint: 'no prompts are kept here: send the text in instructions and input' },
  background: { neutral: [false], hint: leaveOut },
  background_options: { neutral: [], hint: leaveOut },
  truncation: { neutral: ['disabled'], hint: 'nothing is cut here; shorten input' },
  context_management: { neutral: [[]], hint: 'nothing is cut here; shorten input' },
  moderation: { neutral: [], hint: leaveOut },
  access_programs: { neutral: [], hint: leaveOut },
  image: { neutral: [], hint: 'answers are text' },
  // other APIs' words for what this one has
  messages: { neutral: [], hint: 'use input' },
  max_tokens: { neutral: [], hint: 'use max_output_tokens' },
  max_completion_tokens: { neutral: [], hint: 'use max_output_tokens' },
  response_format: { neutral: [{ type: 'text' }], hint: 'use text.format' },
  reasoning_effort: { neutral: [], hint: 'use reasoning.effort' },
  enable_thinking: { neutral: [], hint: 'use reasoning.effort' },
  logprobs: { neutral: [false], hint: 'use top_logprobs' },
  n: { neutral: [1], hint: 'send the request several times' },
};

/** `client`: whose turn it is in the queue. */
export function responsesTurn(body: ResponsesBody, client: string): TurnRequest {
  refuseOptions(body);
  const prompt: ChatTurn = {
    kind: 'chat',
    messages: readInput(body),
    ...readTools(body),
    parallelToolCalls: body.parallel_tool_calls ?? true,
    ...readReasoning(body),
    // in this API an answer never continues an earlier one
    continueFinal: false,
  };
  const sampling = samplingOf(body);
  const format = readFormat(body);
  if (format && sampling.format)
    throw badField('text.format', 'cannot be joined with grammar or regex', 'give one of them');
  const request = {
    prompt,
    client,
    ...sampling,
    ...(format && { format, formatField: 'text.format' }),
    ...withoutNulls({ maxTokens: body.max_output_tokens, logprobs: wantedLogprobs(body) }),
  };
  checkSampling(request);
  return request;
}

/** How many likeliest tokens to tell of; null = no log-probabilities at all. */
function wantedLogprobs({ top_logprobs: top, include }: ResponsesBody): number | null {
  if (include?.includes('message.output_text.logprobs')) return top ?? 0;
  return top ? top : null;
}

function readFormat({ text }: ResponsesBody): GrammarSpec | null {
  const format = text?.format;
  if (format?.type === 'json_object') return { kind: 'json_object' };
  return format?.type === 'json_schema' ? { kind: 'json_schema', schema: format.schema as JsonSchema } : null;
}

function readReasoning({ reasoning }: ResponsesBody): Pick<ChatTurn, 'thinking' | 'reasoningEffort'> {
  const effort = reasoning?.effort ?? null;
  return effort === 'none' ? { thinking: false, reasoningEffort: null } : { thinking: null, reasoningEffort: effort };
}

/** allowed_tools restricts the tools to those it names. */
function readTools(body: ResponsesBody): Pick<ChatTurn, 'tools' | 'toolChoice'> {
  const tools = (body.tools ?? []).map(readTool);
  const choice = body.tool_choice ?? 'auto';
  const declared = (name: string, path: string) => {
    if (!tools.some(tool => tool.name === name)) throw badField(path, `is ${shown(name)}, which is not among tools`);
    return name;
  };
  if (typeof choice === 'string') {
    if (choice === 'required' && tools.length === 0)
      throw badField('tool_choice', 'is "required", but there are no tools');
    return { tools, toolChoice: tools.length > 0 ? choice : 'none' };
  }
  if (choice.type === 'function') return { tools, toolChoice: { name: declared(choice.name, 'tool_choice.name') } };
  const names = choice.tools.map(({ name }, index) => declared(name, `tool_choice.tools[${index}].name`));
  const allowed = tools.filter(({ name }) => names.includes(name));
  if (allowed.length === 0) throw badField('tool_choice.tools', 'allows no tool', 'use tool_choice "none"');
  return { tools: allowed, toolChoice: choice.mode };
}

type Tool = NonNullable<ResponsesBody['tools']>[number];

function readTool({ name, description, parameters, ...rest }: Tool, index: number, all: readonly Tool[]) {
  const path = `tools[${index}]`;
  const type = parameters?.['type'];
  if (type !== undefined && type !== 'object') {
    throw badField(`${path}.parameters.type`, `must be "object", not ${shown(type)}`);
  }
  if (all.findIndex(tool => tool.name === name) !== index)
    throw badField(`${path}.name`, `${shown(name)} occurs twice`);
  for (const field of ['defer_loading', 'async']) {
    if (rest[field] === true) throw unsupported(`${path}.${field}`, leaveOut);
  }
  const callers = rest['allowed_callers'];
  if (callers != null && !(Array.isArray(callers) && callers.every(caller => caller === 'direct'))) {
    throw unsupported(`${path}.allowed_callers`, 'only the model itself calls tools: leave it out');
  }
  return { name, ...withoutNulls({ description, parameters: parameters as JsonSchema | null | undefined }) };
}

function refuseOptions({ text, reasoning }: ResponsesBody): void {
  const verbosity = text?.verbosity ?? 'medium';
  if (verbosity !== 'medium') {
    throw unsupported('text.verbosity', 'ask for it in instructions', asNot(verbosity));
  }
  const { context, mode } = reasoning ?? {};
  if (context != null && context !== 'auto') throw unsupported('reasoning.context', leaveOut);
  if (mode != null && mode !== 'standard') throw unsupported('reasoning.mode', leaveOut);
}
