/**
 * Qwen3-Coder, Qwen3.6 and later: `<tool_call><function=name><parameter=k>v</parameter>...</function></tool_call>`, each tag on a
 * line of its own. These models often leave out the outer tag.
 */

import { type CallSyntax, MAX_NAME_LENGTH } from './syntax.ts';
import { TaggedArguments } from './tagged-arguments.ts';
import { taggedCall } from './tagged-grammar.ts';

const OPEN = '<tool_call>';
const CLOSE = '</tool_call>';
const FUNCTION = '<function=';
const VALUE_CLOSE = '</parameter>';

export const QWEN_XML: CallSyntax = {
  name: 'qwen-xml',
  templateTakesTools: true,
  opens: [OPEN, FUNCTION],
  markers: [OPEN, CLOSE],
  *read(input, draft, open) {
    if (open === OPEN) {
      yield* input.space();
      if (!(yield* input.literal(FUNCTION))) return false;
    }
    const name = yield* input.word(/[\s<>]/, MAX_NAME_LENGTH);
    if (!(yield* input.literal('>')) || !draft.begin(name)) return false;
    const args = new TaggedArguments(draft, name);
    for (;;) {
      yield* input.space();
      if (!(yield* input.literal('<parameter='))) break;
      const key = yield* input.before('>');
      // one line break on each side belongs to the tags
      yield* input.literal('\n');
      if (key === null || !(yield* args.read(input, key, [`\n${VALUE_CLOSE}`, VALUE_CLOSE]))) return false;
    }
    const end = yield* input.closing('</function>');
    if (!args.finish(end, input.wasCut)) return false;
    if (end !== 'whole' || (yield* input.spaceThen(CLOSE)) || open === FUNCTION) return true;
    yield* input.space();
    return (yield* input.sees(OPEN)) || (yield* input.closing(CLOSE)) !== null;
  },
  call: tool =>
    taggedCall(tool, {
      open: `${OPEN}\n${FUNCTION}${tool.name}>\n`,
      valueOpen: key => `<parameter=${key}>\n`,
      valueClose: `\n${VALUE_CLOSE}\n`,
      forbidden: VALUE_CLOSE,
      close: `</function>\n${CLOSE}`,
    }),
  answer: (call, several) => (several ? { kind: 'repeat', item: call, separator: '\n' } : call),
};
