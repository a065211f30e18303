/** Server-sent events as browsers read them (HTML standard, "event stream interpretation"), strict where they are lenient. */

export interface SseEvent {
  /** The event's name; 'message' without one. */
  readonly event: string;
  readonly data: string;
  /** The data as JSON; throws when it is none. */
  // biome-ignore lint/suspicious/noExplicitAny: bodies are looked at field by field
  readonly json: any;
}

/** Events of a whole stream. Throws for what a browser would pass over: unknown fields, an event that is not ended. */
export function readEvents(text: string): SseEvent[] {
  const blocks = text.split('\n\n');
  const rest = blocks.pop();
  if (rest !== '') throw new Error(`the stream ends inside an event: ${JSON.stringify(rest)}`);
  return blocks.flatMap(block => {
    const lines = block.split('\n').filter(line => !line.startsWith(':'));
    if (lines.length === 0) return [];
    const fields = lines.map(line => /^(event|data): (.*)$/s.exec(line));
    const bad = fields.indexOf(null);
    if (bad >= 0) throw new Error(`no field of an event: ${JSON.stringify(lines[bad])}`);
    const valuesOf = (name: string) => fields.filter(field => field![1] === name).map(field => field![2]);
    const data = valuesOf('data').join('\n');
    return [
      {
        event: valuesOf('event').at(-1) ?? 'message',
        data,
        get json() {
          return JSON.parse(data);
        },
      },
    ];
  });
}

/** Comment lines of a stream. */
export function commentsOf(text: string): string[] {
  return text.split('\n').filter(line => line.startsWith(':'));
}
