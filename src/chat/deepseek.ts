/**
 * DeepSeek: calls between tokens of their own, `<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>` since V3.1, and with the
 * word "function", the name and a fence of JSON before that. Both are read, whichever the template shows.
 */

import type { GrammarSpec } from '../grammar/api.ts';
import type { CallDraft } from './draft.ts';
import type { Input, Reading } from './input.ts';
import { argumentsObject, readJson } from './json-call.ts';
import { type CallSyntax, MAX_NAME_LENGTH } from './syntax.ts';

const CALLS_OPEN = '<｜tool▁calls▁begin｜>';
const CALLS_CLOSE = '<｜tool▁calls▁end｜>';
const OPEN = '<｜tool▁call▁begin｜>';
const CLOSE = '<｜tool▁call▁end｜>';
const SEPARATOR = '<｜tool▁sep｜>';
const FENCE = '```';

const SHARED = {
  templateTakesTools: true,
  // some answers leave out the outer tokens
  opens: [CALLS_OPEN, OPEN],
  markers: [CALLS_OPEN, CALLS_CLOSE, OPEN, CLOSE, SEPARATOR],
  *read(input: Input, draft: CallDraft, open: string): Reading<boolean> {
    if (open === CALLS_OPEN && !(yield* input.spaceThen(OPEN))) return false;
    for (;;) {
      const end = yield* readCall(input, draft);
      if (end !== 'whole') return end !== null;
      if (yield* input.spaceThen(OPEN)) continue;
      if (open === OPEN) {
        yield* input.spaceThen(CALLS_CLOSE);
        return true;
      }
      yield* input.space();
      return (yield* input.closing(CALLS_CLOSE)) !== null;
    }
  },
};

/** Reads one call up to its closing token; null when it is none. */
function* readCall(input: Input, draft: CallDraft) {
  yield* input.space();
  const first = yield* input.word(/[\s<]/, MAX_NAME_LENGTH);
  if (!(yield* input.literal(SEPARATOR))) return null;
  yield* input.space();
  let isFenced = false;
  let name = first;
  if (!(yield* input.sees('{'))) {
    name = yield* input.word(/[\s<`]/, MAX_NAME_LENGTH);
    isFenced = yield* input.spaceThen(`${FENCE}json`);
    if (first !== 'function' || !isFenced) return null;
    yield* input.space();
  }
  if (!draft.begin(name)) return null;
  if ((yield* readJson(input, text => draft.add(text))) === null || !draft.finish()) return null;
  // the arguments are whole: nothing is missing but what closes the call
  for (const token of isFenced ? [FENCE, CLOSE] : [CLOSE]) {
    yield* input.space();
    const end = yield* input.closing(token);
    if (end !== 'whole') return end;
  }
  return 'whole';
}

/** `before` and `after`: what stands around the arguments. */
function syntax(name: string, before: (tool: string) => GrammarSpec[], after: string, between: string): CallSyntax {
  return {
    ...SHARED,
    name,
    call: tool => {
      const closing: GrammarSpec[] = after === '' ? [token(CLOSE)] : [literal(after), token(CLOSE)];
      const parts = [token(OPEN), ...before(tool.name), argumentsObject(tool.parameters), ...closing];
      return { kind: 'sequence', parts };
    },
    answer(call, several) {
      const calls = several ? ({ kind: 'repeat', item: call, separator: between } as const) : call;
      return { kind: 'sequence', parts: [token(CALLS_OPEN), calls, token(CALLS_CLOSE)] };
    },
  };
}

const token = (text: string): GrammarSpec => ({ kind: 'token', text });
const literal = (text: string): GrammarSpec => ({ kind: 'literal', text });

/** V3.1 and later. */
export const DEEPSEEK: CallSyntax = syntax('deepseek', tool => [literal(tool), token(SEPARATOR)], '', '');

/** V3 and R1. */
export const DEEPSEEK_FENCED: CallSyntax = syntax(
  'deepseek-fenced',
  tool => [literal('function'), token(SEPARATOR), literal(`${tool}\n${FENCE}json\n`)],
  `\n${FENCE}`,
  '\n',
);
