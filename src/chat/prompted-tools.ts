/**
 * Tools for models whose chat template knows none: they are described in a system message, earlier calls are shown as the model is
 * asked to write them, and results come as messages of the user. docs/chat-formats.md has the text.
 */

import type { ToolChoice, ToolDefinition } from './api.ts';

/** A message as chat templates know it. */
interface Message {
  readonly role: string;
  readonly content: string | null;
  readonly [key: string]: unknown;
}

/** The messages with tools, calls and results as text. Roles that are left: those of the messages, without `tool`. */
export function promptTools(
  messages: readonly Message[],
  tools: readonly ToolDefinition[],
  choice: ToolChoice,
  parallel: boolean,
): Message[] {
  const plain = withoutToolMessages(messages);
  if (tools.length === 0 || choice === 'none') return plain;
  const text = describeTools(tools, choice, parallel);
  const [first, ...rest] = plain;
  return first?.role === 'system'
    ? [{ ...first, content: `${first.content}\n\n${text}` }, ...rest]
    : [{ role: 'system', content: text }, ...plain];
}

/** The text of the system message. */
export function describeTools(tools: readonly ToolDefinition[], choice: ToolChoice, parallel: boolean): string {
  const lines = tools.map(({ name, description, parameters }) =>
    JSON.stringify({ name, ...(description !== undefined && { description }), parameters: parameters ?? {} }),
  );
  const when =
    choice === 'auto'
      ? 'If a tool helps with the request, answer with a call. If none does, answer in plain text without a call.'
      : `Answer with a call of ${choice === 'required' ? 'a tool' : `the tool ${(choice as { name: string }).name}`}.`;
  const several = parallel ? 'The list may hold several calls.' : 'The list holds exactly one call.';
  return [
    'You can call these tools. Each line is one tool: its name, what it does, and the JSON schema of its arguments.',
    '',
    ...lines,
    '',
    `${when} A call is this JSON object and nothing else, no text before or after it:`,
    '',
    '{"tool_calls": [{"name": "NAME", "arguments": {"PARAMETER": "VALUE"}}]}',
    '',
    `${several} The results come in the next message.`,
  ].join('\n');
}

function withoutToolMessages(messages: readonly Message[]): Message[] {
  const names = new Map<unknown, string>();
  const plain: Message[] = [];
  let results: string[] = [];
  /** Templates want users and assistants by turns: what the user says next goes into the same message. */
  const endResults = (next?: Message) => {
    const isUser = next?.role === 'user';
    if (results.length > 0 && isUser) plain.push({ ...next, content: [...results, next.content ?? ''].join('\n\n') });
    else {
      if (results.length > 0) plain.push({ role: 'user', content: results.join('\n\n') });
      if (next) plain.push(next);
    }
    results = [];
  };
  for (const message of messages) {
    if (message.role === 'tool') {
      const name = names.get(message['tool_call_id']) ?? message['name'];
      results.push(`Result of ${typeof name === 'string' ? name : 'the call'}:\n${message.content ?? ''}`);
      continue;
    }
    const { tool_calls: calls, ...rest } = message;
    if (!Array.isArray(calls) || calls.length === 0) {
      endResults(rest);
      continue;
    }
    for (const { id, function: called } of calls) if (id !== undefined) names.set(id, String(called?.name));
    const text = writeCalls(calls);
    endResults({ ...rest, content: message.content ? `${message.content}\n\n${text}` : text });
  }
  endResults();
  return plain;
}

/** Calls as the model was asked to write them. */
function writeCalls(calls: readonly { function?: { name?: unknown; arguments?: unknown } }[]): string {
  const written = calls.map(({ function: called }) => {
    const { name, arguments: given } = called ?? {};
    // arguments that are no JSON stay the text that they are
    const json =
      typeof given === 'string' ? (isJson(given) ? given : JSON.stringify(given)) : JSON.stringify(given ?? {});
    return `{"name": ${JSON.stringify(name ?? '')}, "arguments": ${json}}`;
  });
  return `{"tool_calls": [${written.join(', ')}]}`;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
