/** Tools and the choice among them, from the words of the chat API to those of a turn. */

import * as z from 'zod';
import { shown } from '../../common/shown.ts';
import type { JsonSchema } from '../../grammar/api.ts';
import type { ChatTurn } from '../turn.ts';
import { badField } from './openai-body.ts';
import { anyObject, flag, looseObject, text } from './openai-fields.ts';

/** Every tool is described in the prompt and compiled into one grammar. OpenAI takes 128. */
export const MAX_TOOLS = 512;
/** What chat formats can write without quoting: names of OpenAI and of MCP servers are within it. */
export const TOOL_NAME = /^[A-Za-z0-9_.:/-]{1,128}$/;

const nameMessage = 'must be 1 to 128 letters, digits, "_", "-", ".", ":" or "/"';
const choiceMessage = 'must be "auto", "none", "required" or {"type": "function", "function": {"name": ...}}';
const functionType = z.literal('function', { error: 'must be "function"' });

export const Tool = looseObject({
  type: functionType,
  function: looseObject({
    name: z.string({ error: nameMessage }).regex(TOOL_NAME, nameMessage),
    description: text().nullish(),
    parameters: anyObject().nullish().describe('JSON schema of an object: the arguments. Missing: any object.'),
    strict: flag()
      .nullish()
      .describe(
        'Arguments follow the schema whenever tool_choice forces a call, with or without this; never under "auto".',
      ),
  }),
}).meta({ id: 'ChatTool' });

export const toolFields = {
  tools: z
    .array(Tool, { error: `must be an array of at most ${MAX_TOOLS} tools` })
    .max(MAX_TOOLS, `must be an array of at most ${MAX_TOOLS} tools`)
    .nullish()
    .describe('Functions that the model may call.'),
  tool_choice: z
    .union(
      [
        z.enum(['auto', 'none', 'required']),
        looseObject({ type: functionType, function: looseObject({ name: text() }) }),
      ],
      {
        error: choiceMessage,
      },
    )
    .nullish()
    .describe(
      'auto (default with tools): the model decides; none: no call; required: at least one; or the function to call.',
    ),
  parallel_tool_calls: flag().nullish().describe('Default true. false: at most one call.'),
};

const Body = z.object(toolFields);

/** Throws RequestErrors naming the field. */
export function toolsOf(body: z.output<typeof Body>): Pick<ChatTurn, 'tools' | 'toolChoice' | 'parallelToolCalls'> {
  const tools = (body.tools ?? []).map(({ function: { name, description, parameters } }, index) => {
    const type = parameters?.type;
    if (type !== undefined && type !== 'object') {
      throw badField(`tools[${index}].function.parameters.type`, `must be "object", not ${shown(type)}`);
    }
    return {
      name,
      ...(description != null && { description }),
      ...(parameters != null && { parameters: parameters as JsonSchema }),
    };
  });
  const names = tools.map(tool => tool.name);
  names.forEach((name, index) => {
    if (names.indexOf(name) !== index) throw badField(`tools[${index}].function.name`, `${shown(name)} occurs twice`);
  });
  return { tools, toolChoice: choiceOf(body.tool_choice, names), parallelToolCalls: body.parallel_tool_calls ?? true };
}

function choiceOf(choice: z.output<typeof Body>['tool_choice'], names: readonly string[]): ChatTurn['toolChoice'] {
  if (choice == null) return names.length > 0 ? 'auto' : 'none';
  if (typeof choice === 'object') {
    const { name } = choice.function;
    if (!names.includes(name)) throw badField('tool_choice', `names ${shown(name)}, which is not among tools`);
    return { name };
  }
  if (choice === 'required' && names.length === 0)
    throw badField('tool_choice', 'is "required", but there are no tools');
  return names.length > 0 ? choice : 'none';
}
