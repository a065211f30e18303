/** Answers in parts, each of which begins with a marker: what a prompt has written of the first one. */

import type { ChatFormat, ParserOptions } from '../chat/api.ts';
import type { Engine } from '../engine/api.ts';

/**
 * What stands behind the last part marker of the prompt, as the parser takes it. Empty when the prompt has none. Special tokens that
 * are no markers have no text, as in answers.
 */
export async function partOf(
  engine: Engine,
  { partMarker, markers }: Pick<ChatFormat, 'partMarker' | 'markers'>,
  promptIds: readonly number[],
): Promise<ParserOptions['begun']> {
  const textOf = (id: number) => Buffer.from(engine.tokenBytes(id)).toString();
  const at = promptIds.findLastIndex(id => textOf(id) === partMarker);
  const parts: [text: string, marker?: string][] = [];
  let ids: number[] = [];
  for (const id of at < 0 ? [] : promptIds.slice(at + 1)) {
    const text = textOf(id);
    if (markers.includes(text)) {
      parts.push([await engine.decode(ids), text]);
      ids = [];
    } else ids.push(id);
  }
  if (ids.length > 0) parts.push([await engine.decode(ids)]);
  return parts;
}
