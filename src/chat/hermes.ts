/** Qwen3 and the fine-tunes after Hermes: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`. */

import { callObject, readCallObject } from './json-call.ts';
import type { CallSyntax } from './syntax.ts';

const OPEN = '<tool_call>';
const CLOSE = '</tool_call>';

export const HERMES: CallSyntax = {
  name: 'hermes',
  templateTakesTools: true,
  opens: [OPEN],
  markers: [OPEN, CLOSE],
  *read(input, draft) {
    yield* input.space();
    if (!(yield* readCallObject(input, draft))) return false;
    if (yield* input.spaceThen(CLOSE)) return true;
    // the object is whole: nothing is missing but its closing tag
    yield* input.space();
    return (yield* input.sees(OPEN)) || (yield* input.closing(CLOSE)) !== null;
  },
  call(tool) {
    const parts = [
      { kind: 'literal', text: `${OPEN}\n` },
      callObject(tool),
      { kind: 'literal', text: `\n${CLOSE}` },
    ] as const;
    return { kind: 'sequence', parts };
  },
  answer: (call, several) => (several ? { kind: 'repeat', item: call, separator: '\n' } : call),
};
