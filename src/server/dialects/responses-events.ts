/** Events of a turn as the numbered events of a Responses stream. The last one carries the whole answer. */

import { InternalError } from '../../common/errors.ts';
import type { EffectiveSampling } from '../../engine/api.ts';
import type { HttpError } from '../errors.ts';
import type { TurnEvent } from '../turn.ts';
import { callItem, type ItemEvent, type OpenItem, textItem } from './responses-items.ts';
import {
  type ResponseHead,
  type ResponseItem,
  type ResponseItemStatus,
  type ResponseObject,
  type ResponseState,
  responseObject,
  responseUsage,
  STARTED,
} from './responses-object.ts';

export interface ResponseEvent extends ItemEvent {
  readonly sequence_number: number;
}

export class ResponseWriter {
  readonly #head: ResponseHead;
  readonly #now: () => number;
  readonly #withEncrypted: boolean;
  readonly #withProgress: boolean;
  readonly #output: ResponseItem[] = [];
  #sampling: EffectiveSampling | null = null;
  #open: OpenItem | null = null;
  #sequence = 0;
  #result: ResponseObject | null = null;

  /** `now`: seconds since 1970. */
  constructor(head: ResponseHead, now: () => number) {
    this.#head = head;
    this.#now = now;
    this.#withEncrypted = head.body.include?.includes('reasoning.encrypted_content') ?? false;
    this.#withProgress = head.body.stream_options?.include_progress ?? false;
  }

  /** The answer; null until the turn has ended. */
  get result(): ResponseObject | null {
    return this.#result;
  }

  events(event: TurnEvent): ResponseEvent[] {
    return this.#translate(event).map(item => this.#number(item));
  }

  /** What tells of an error behind the start: the answer so far, marked as failed, then the error itself. */
  failure({ code, message, param, type }: HttpError): ResponseEvent[] {
    const error = { type, code, message, param };
    return [
      ...this.#close('incomplete'),
      this.#lifecycle('response.failed', {
        ...STARTED,
        status: 'failed',
        error: { code: type === 'rate_limit_error' ? 'rate_limit_exceeded' : 'server_error', message },
      }),
      { type: 'error', code, message, param, error },
    ].map(item => this.#number(item));
  }

  #translate(event: TurnEvent): ItemEvent[] {
    switch (event.type) {
      case 'accepted':
        this.#sampling = event.sampling ?? null;
        return [this.#lifecycle('response.created', STARTED), this.#lifecycle('response.in_progress', STARTED)];
      case 'progress': {
        if (!this.#withProgress) return [];
        // clients give up on events that they do not know, but not on fields
        const { done, total, etaMs } = event;
        return [{ ...this.#lifecycle('response.in_progress', STARTED), progress: { done, total, eta_ms: etaMs } }];
      }
      case 'reasoning':
        return [...this.#textItem('reasoning'), ...this.#open!.add(event.text)];
      case 'text':
        return [...this.#textItem('message'), ...this.#open!.add(event.text, event.logprobs)];
      case 'call':
        return [
          ...this.#close('completed'),
          ...this.#begin(callItem(callKey(event.index), this.#output.length, event.id, event.name)),
        ];
      case 'arguments':
        if (this.#open?.key !== callKey(event.index)) {
          throw new InternalError(
            'TURN_ORDER',
            `arguments of ${callKey(event.index)} while ${this.#open?.key} is open`,
          );
        }
        return this.#open.add(event.text);
      case 'end':
        return this.#end(event);
    }
  }

  #textItem(kind: 'message' | 'reasoning'): ItemEvent[] {
    if (this.#open?.key === kind) return [];
    return [...this.#close('completed'), ...this.#begin(textItem(kind, this.#output.length, this.#withEncrypted))];
  }

  #begin(item: OpenItem): ItemEvent[] {
    this.#open = item;
    return item.begin();
  }

  #close(status: ResponseItemStatus): ItemEvent[] {
    if (this.#open === null) return [];
    const { events, item } = this.#open.end(status);
    this.#output.push(item);
    this.#open = null;
    return events;
  }

  #end({ finish, usage }: Extract<TurnEvent, { type: 'end' }>): ItemEvent[] {
    const status = finish === 'length' ? 'incomplete' : 'completed';
    const closing = this.#close(status);
    const last = this.#lifecycle(`response.${status}`, {
      ...STARTED,
      status,
      usage: responseUsage(usage),
      incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
      completed_at: status === 'completed' ? this.#now() : null,
    });
    this.#result = last.response;
    return [...closing, last];
  }

  #lifecycle(type: string, state: ResponseState): ItemEvent & { response: ResponseObject } {
    const response = responseObject(this.#head, this.#sampling, { ...state, output: [...this.#output] });
    return { type, response };
  }

  #number({ type, ...fields }: ItemEvent): ResponseEvent {
    return { type, sequence_number: this.#sequence++, ...fields };
  }
}

function callKey(index: number): string {
  return `call ${index}`;
}
