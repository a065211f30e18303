/** Conversations in the forms that chat templates expect: some fail at what others need. */

interface Call {
  readonly function?: { readonly arguments?: unknown };
}

/** The messages as they came, then with what templates may fail at replaced by what means the same. */
export function* variants(messages: readonly unknown[]): Generator<readonly unknown[]> {
  yield messages;
  const filled = messages.map(message => (has(message, 'content', isNull) ? { ...message, content: '' } : message));
  if (messages.some(message => has(message, 'content', isNull))) yield filled;
  if (!messages.some(message => has(message, 'tool_calls', Array.isArray))) return;
  const written = (message: unknown) =>
    has(message, 'tool_calls', Array.isArray)
      ? { ...message, tool_calls: (message.tool_calls as Call[]).map(withWrittenArguments) }
      : message;
  yield messages.map(written);
  yield filled.map(written);
}

const isNull = (value: unknown): value is null => value === null;

function has<K extends string, V>(
  message: unknown,
  key: K,
  is: (value: unknown) => value is V,
): message is Record<K, V> {
  return typeof message === 'object' && message !== null && is((message as Record<string, unknown>)[key]);
}

function withWrittenArguments(call: Call): Call {
  const called = call?.function;
  if (typeof called?.arguments !== 'object' || called.arguments === null) return call;
  return { ...call, function: { ...called, arguments: written(called.arguments) } };
}

/** JSON as Python writes it, which is how models have seen it. */
function written(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(written).join(', ')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(([key, member]) => `${JSON.stringify(key)}: ${written(member)}`);
  return `{${members.join(', ')}}`;
}
