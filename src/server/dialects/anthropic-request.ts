/** A request of the Anthropic Messages API as a turn. Throws RequestErrors that name the field. */

import type { ToolChoice, ToolDefinition } from '../../chat/api.ts';
import { shown } from '../../common/shown.ts';
import { checkSampling } from '../../engine/sampling-options.ts';
import type { JsonSchema } from '../../grammar/api.ts';
import type { ChatTurn, TurnRequest } from '../turn.ts';
import { readHistory } from './anthropic-history.ts';
import type { AnthropicMessageBody, AnthropicPromptBody, AnthropicTool } from './anthropic-schema.ts';
import { badField, unsupported } from './openai-body.ts';
import { samplingOf } from './openai-fields.ts';
import { CHAT_HINTS, type UnsupportedFields, unsupportedFields } from './openai-unsupported.ts';

/** Fields with a meaning that this server does not have, and what to do instead. */
export const ANTHROPIC_UNSUPPORTED: UnsupportedFields = {
  ...unsupportedFields({
    ...CHAT_HINTS,
    system: 'use system',
    stop: 'use stop_sequences',
    form: 'use output_config.format',
    thinking: 'use thinking',
    effort: 'use thinking and output_config.effort',
    logprobs: 'use /v1/chat/completions',
  }),
  container: { neutral: [], hint: 'code runs on the side of the client: declare a tool' },
  mcp_servers: { neutral: [[]], hint: 'connect MCP servers to the client, and declare their tools in tools' },
  inference_geo: { neutral: [], hint: 'the model runs where the server is; leave it out' },
  diagnostics: { neutral: [{}, { previous_message_id: null }], hint: 'no earlier answer is kept; leave it out' },
  fallbacks: { neutral: [[]], hint: 'one model is served; leave it out' },
  speed: { neutral: ['standard'], hint: 'leave it out' },
  // other APIs' words for what this one has
  stop: { neutral: [[]], hint: 'use stop_sequences' },
  max_completion_tokens: { neutral: [], hint: 'use max_tokens' },
  response_format: { neutral: [{ type: 'text' }], hint: 'use output_config.format' },
  reasoning_effort: { neutral: [], hint: 'use output_config.effort' },
  enable_thinking: { neutral: [], hint: 'use thinking' },
  parallel_tool_calls: { neutral: [true], hint: 'use tool_choice.disable_parallel_tool_use' },
  grammar: { neutral: [], hint: 'use output_config.format, or /v1/chat/completions' },
  regex: { neutral: [], hint: 'use output_config.format, or /v1/chat/completions' },
  logprobs: { neutral: [false], hint: 'use /v1/chat/completions' },
  top_logprobs: { neutral: [], hint: 'use /v1/chat/completions' },
  n: { neutral: [1], hint: 'send the request several times' },
};

/** Counting takes the body of a message too, and nothing but its prompt matters then. */
export const COUNT_UNSUPPORTED: UnsupportedFields = Object.fromEntries(
  Object.entries(ANTHROPIC_UNSUPPORTED).filter(([name]) => name !== 'stop_sequences'),
);

/** A message to generate. `client`: whose turn it is in the queue. */
export function messageTurn(body: AnthropicMessageBody, client: string): TurnRequest {
  const schema = outputSchema(body);
  const request = {
    prompt: promptTurn(body),
    client,
    maxTokens: body.max_tokens,
    ...samplingOf({ ...body, stop: body.stop_sequences }),
    ...(schema !== undefined && {
      format: { kind: 'json_schema' as const, schema },
      formatField: body.output_config?.format ? 'output_config.format' : 'output_format',
    }),
  };
  checkSampling(request);
  return request;
}

/** The prompt of a message: what count_tokens counts. */
export function promptTurn(body: AnthropicPromptBody): ChatTurn {
  refuseEdits(body['context_management']);
  const { messages, continueFinal } = readHistory(body);
  const tools = (body.tools ?? []).map(readTool);
  if (continueFinal) checkPrefill(body);
  const choice = body.tool_choice;
  return {
    kind: 'chat',
    messages,
    tools,
    toolChoice: readToolChoice(body, tools),
    parallelToolCalls: !(choice != null && choice.type !== 'none' && choice.disable_parallel_tool_use),
    thinking: readThinking(body),
    reasoningEffort: body.output_config?.effort ?? null,
    continueFinal,
  };
}

/** Thinking is asked for in this API: without the field there is none. */
function readThinking({ thinking }: AnthropicPromptBody): boolean | null {
  if (thinking?.type === 'adaptive') return null;
  return thinking?.type === 'enabled';
}

function readTool(tool: AnthropicTool, index: number, all: readonly AnthropicTool[]): ToolDefinition {
  const { name, type, description, input_schema: parameters } = tool;
  const path = `tools[${index}]`;
  if (type != null && type !== 'custom') {
    const hint = 'declare tools of your own, with a name and an input_schema';
    throw unsupported(`${path}.type`, hint, `is ${shown(type)}, which is not available here`);
  }
  if (parameters === undefined) throw badField(`${path}.input_schema`, 'is missing: it must be a JSON schema');
  if (all.findIndex(other => other.name === name) !== index)
    throw badField(`${path}.name`, `${shown(name)} occurs twice`);
  if (tool['defer_loading'] === true) throw unsupported(`${path}.defer_loading`, 'there is no search for tools');
  if (!isDirect(tool['allowed_callers'])) {
    throw unsupported(`${path}.allowed_callers`, 'only the model itself calls tools: leave it out');
  }
  return { name, parameters, ...(description != null && { description }) };
}

function isDirect(callers: unknown): boolean {
  return callers == null || (Array.isArray(callers) && callers.every(caller => caller === 'direct'));
}

function readToolChoice({ tool_choice: choice }: AnthropicPromptBody, tools: readonly ToolDefinition[]): ToolChoice {
  switch (choice?.type) {
    case 'any':
      if (tools.length === 0) throw badField('tool_choice', 'is "any", but there are no tools');
      return 'required';
    case 'tool':
      if (tools.some(({ name }) => name === choice.name)) return { name: choice.name };
      throw badField('tool_choice.name', `is ${shown(choice.name)}, which is not among tools`);
    case 'none':
      return 'none';
    default:
      return tools.length > 0 ? 'auto' : 'none';
  }
}

/** What cannot hold for an answer whose beginning is given. */
function checkPrefill(body: AnthropicPromptBody): void {
  const refuse = (field: string) => {
    const what = 'cannot hold for an answer whose beginning the last message gives';
    throw badField(field, what, "end messages with the user's, or leave it out");
  };
  if (body.thinking?.type === 'enabled') refuse('thinking');
  if (body.tools?.length) refuse('tools');
  if (body.output_config?.format) refuse('output_config.format');
  if (body.output_format) refuse('output_format');
}

function outputSchema({ output_config, output_format }: AnthropicPromptBody): JsonSchema | undefined {
  const format = output_config?.format;
  if (format && output_format)
    throw badField('output_format', 'stands beside output_config.format', 'give one of them');
  return (format ?? output_format)?.schema as JsonSchema | undefined;
}

/** Context edits that keep everything are sent by some agents as a matter of course; others would change the prompt. */
function refuseEdits(management: unknown): void {
  if (management == null) return;
  const { edits = [] } = management as { edits?: unknown };
  const keepsAll = (edit: { type?: unknown; keep?: unknown } | null) =>
    String(edit?.type).startsWith('clear_thinking') && edit?.keep === 'all';
  if (Array.isArray(edits) && edits.every(keepsAll)) return;
  throw unsupported('context_management', 'the prompt is what messages say; leave it out');
}
