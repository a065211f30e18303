/**
 * MiniMax-M2: `<minimax:tool_call><invoke name="f"><parameter name="k">v</parameter>...</invoke>...</minimax:tool_call>`, each tag on
 * a line of its own, all calls of an answer in one outer tag.
 */

import { type CallSyntax, MAX_NAME_LENGTH } from './syntax.ts';
import { TaggedArguments } from './tagged-arguments.ts';
import { taggedCall } from './tagged-grammar.ts';

const OPEN = '<minimax:tool_call>';
const CLOSE = '</minimax:tool_call>';
const INVOKE = '<invoke name="';
const VALUE_CLOSE = '</parameter>';

export const MINIMAX: CallSyntax = {
  name: 'minimax',
  templateTakesTools: true,
  opens: [OPEN],
  markers: [OPEN, CLOSE],
  *read(input, draft) {
    yield* input.space();
    do {
      if (!(yield* input.literal(INVOKE))) return false;
      const name = yield* input.word(/[\s"<>]/, MAX_NAME_LENGTH);
      if (!(yield* input.literal('">')) || !draft.begin(name)) return false;
      const args = new TaggedArguments(draft, name);
      for (;;) {
        yield* input.space();
        if (!(yield* input.literal('<parameter name="'))) break;
        const key = yield* input.before('">');
        if (key === null || !(yield* args.read(input, key, [VALUE_CLOSE]))) return false;
      }
      const end = yield* input.closing('</invoke>');
      if (!args.finish(end, input.wasCut)) return false;
      if (end === 'whole') yield* input.space();
    } while (yield* input.sees(INVOKE));
    return (yield* input.closing(CLOSE)) !== null;
  },
  call: tool =>
    taggedCall(tool, {
      open: `${INVOKE}${tool.name}">\n`,
      valueOpen: key => `<parameter name="${key}">`,
      valueClose: `${VALUE_CLOSE}\n`,
      forbidden: VALUE_CLOSE,
      close: '</invoke>',
    }),
  answer(call, several) {
    const calls = several ? ({ kind: 'repeat', item: call, separator: '\n' } as const) : call;
    const tag = (text: string) => ({ kind: 'literal', text }) as const;
    return { kind: 'sequence', parts: [tag(`${OPEN}\n`), calls, tag(`\n${CLOSE}`)] };
  },
};
