/** Output items of the Responses API while they grow: the events of their beginning, their parts and their end. */

import { randomUUID } from 'node:crypto';
import type { TurnLogprobs } from '../turn.ts';
import type { ResponseItem, ResponseItemStatus, ResponseLogprobs } from './responses-object.ts';
import { portableReasoning } from './responses-reasoning.ts';

/** An event without its number. */
export interface ItemEvent {
  readonly type: string;
  readonly [field: string]: unknown;
}

export interface OpenItem {
  /** Tells whether the next event of the turn belongs to it. */
  readonly key: string;
  begin(): ItemEvent[];
  add(text: string, logprobs?: readonly TurnLogprobs[]): ItemEvent[];
  end(status: ResponseItemStatus): { events: ItemEvent[]; item: ResponseItem };
}

export function itemId(prefix: 'rs' | 'msg' | 'fc'): string {
  return `${prefix}_${randomUUID().replaceAll('-', '')}`;
}

/** Text of the answer, or its reasoning: an item with one part. */
export function textItem(kind: 'message' | 'reasoning', index: number, withEncrypted: boolean): OpenItem {
  const id = itemId(kind === 'message' ? 'msg' : 'rs');
  const name = kind === 'message' ? 'output_text' : 'reasoning_text';
  const at = { item_id: id, output_index: index, content_index: 0 };
  let text = '';
  const logprobs: ResponseLogprobs = [];
  const part = () =>
    kind === 'message' ? { type: name, text, annotations: [], logprobs: [...logprobs] } : { type: name, text };
  const item = (status: ResponseItemStatus, content: unknown[]) =>
    (kind === 'message'
      ? { type: kind, id, status, role: 'assistant', content }
      : {
          type: kind,
          id,
          status,
          summary: [],
          content,
          ...(withEncrypted && { encrypted_content: status === 'in_progress' ? null : portableReasoning(text) }),
        }) as ResponseItem;
  return {
    key: kind,
    begin: () => [
      { type: 'response.output_item.added', output_index: index, item: item('in_progress', []) },
      { type: 'response.content_part.added', ...at, part: part() },
    ],
    add(delta, tokens = []) {
      text += delta;
      const told = tokens.map(responseLogprobs);
      logprobs.push(...told);
      return [{ type: `response.${name}.delta`, ...at, delta, ...(kind === 'message' && { logprobs: told }) }];
    },
    end(status) {
      const done = item(status, [part()]);
      const events = [
        { type: `response.${name}.done`, ...at, text, ...(kind === 'message' && { logprobs }) },
        { type: 'response.content_part.done', ...at, part: part() },
        { type: 'response.output_item.done', output_index: index, item: done },
      ];
      return { events, item: done };
    },
  };
}

export function callItem(key: string, index: number, callId: string, name: string): OpenItem {
  const id = itemId('fc');
  const at = { item_id: id, output_index: index };
  let text = '';
  const item = (status: ResponseItemStatus): ResponseItem => ({
    type: 'function_call',
    id,
    status,
    call_id: callId,
    name,
    arguments: text,
  });
  return {
    key,
    begin: () => [{ type: 'response.output_item.added', output_index: index, item: item('in_progress') }],
    add(delta) {
      text += delta;
      return [{ type: 'response.function_call_arguments.delta', ...at, delta }];
    },
    end(status) {
      const events = [
        { type: 'response.function_call_arguments.done', ...at, name, arguments: text },
        { type: 'response.output_item.done', output_index: index, item: item(status) },
      ];
      return { events, item: item(status) };
    },
  };
}

function responseLogprobs({ top, ...token }: TurnLogprobs): ResponseLogprobs[number] {
  const likely = ({ token, bytes, logprob }: Omit<TurnLogprobs, 'top'>) => ({ token, bytes: [...bytes], logprob });
  return { ...likely(token), top_logprobs: top.map(likely) };
}
