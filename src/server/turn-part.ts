/** Answers in parts, each of which begins with a marker: what a prompt has written of the first one. */

import type { ParserOptions } from '../chat/api.ts';
import type { Engine } from '../engine/api.ts';

/** What stands behind the last `marker` of the prompt, cut behind every added token. Empty when the prompt has none. */
export function partOf(engine: Engine, marker: string, promptIds: readonly number[]): ParserOptions['begun'] {
  const textOf = (id: number) => Buffer.from(engine.tokenBytes(id)).toString();
  const at = promptIds.findLastIndex(id => textOf(id) === marker);
  const added = new Set(engine.text.addedTokens);
  const parts: [text: string, marker?: string][] = [];
  let bytes: Uint8Array[] = [];
  for (const id of at < 0 ? [] : promptIds.slice(at + 1)) {
    if (added.has(textOf(id))) {
      parts.push([Buffer.concat(bytes).toString(), textOf(id)]);
      bytes = [];
    } else bytes.push(engine.tokenBytes(id));
  }
  if (bytes.length > 0) parts.push([Buffer.concat(bytes).toString()]);
  return parts;
}
