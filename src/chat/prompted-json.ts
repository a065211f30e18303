/**
 * For models without a syntax of their own: they are told the tools in a system message (prompted-tools.ts) and answer with
 * `{"tool_calls": [{"name": ..., "arguments": {...}}]}` and nothing else, in a fence or not.
 */

import { callObject, readCallObject } from './json-call.ts';
import type { CallSyntax } from './syntax.ts';

const FENCE = '```';

export const PROMPTED_JSON: CallSyntax = {
  name: 'json',
  templateTakesTools: false,
  opens: [],
  markers: [],
  *read(input, draft) {
    yield* input.space();
    const isFenced = yield* input.literal(FENCE);
    if (isFenced) {
      yield* input.literal('json');
      yield* input.space();
    }
    for (const token of ['{', '"tool_calls"', ':', '[']) {
      if (!(yield* input.literal(token))) return false;
      yield* input.space();
    }
    do {
      yield* input.space();
      if (!(yield* readCallObject(input, draft))) return false;
      yield* input.space();
    } while (yield* input.literal(','));
    // the calls are whole: where the text ends now, only brackets are missing
    for (const token of isFenced ? [']', '}', FENCE] : [']', '}']) {
      yield* input.space();
      const end = yield* input.closing(token);
      if (end !== 'whole') return end !== null;
    }
    // a fence with text behind it is an example
    if (isFenced) yield* input.space();
    return !isFenced || (yield* input.atEnd());
  },
  call: callObject,
  answer(call, several) {
    const calls = several ? ({ kind: 'repeat', item: call, separator: ', ' } as const) : call;
    return {
      kind: 'sequence',
      parts: [{ kind: 'literal', text: '{"tool_calls": [' }, calls, { kind: 'literal', text: ']}' }],
    };
  },
};
