/** GLM-4.5 and later: `<tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value>...</tool_call>`, line breaks between or not. */

import { type CallSyntax, MAX_NAME_LENGTH } from './syntax.ts';
import { TaggedArguments } from './tagged-arguments.ts';
import { looseLines, taggedCall } from './tagged-grammar.ts';

const OPEN = '<tool_call>';
const CLOSE = '</tool_call>';
const VALUE_CLOSE = '</arg_value>';

export const GLM: CallSyntax = {
  name: 'glm',
  templateTakesTools: true,
  opens: [OPEN],
  markers: ['<tool_call>', '</tool_call>', '<arg_key>', '</arg_key>', '<arg_value>', '</arg_value>'],
  *read(input, draft) {
    yield* input.space();
    const name = yield* input.word(/[\s<]/, MAX_NAME_LENGTH);
    if (!draft.begin(name)) return false;
    const args = new TaggedArguments(draft, name);
    for (;;) {
      yield* input.space();
      if (!(yield* input.literal('<arg_key>'))) break;
      const key = yield* input.before('</arg_key>');
      yield* input.space();
      if (key === null || !(yield* input.literal('<arg_value>'))) return false;
      if (!(yield* args.read(input, key, [VALUE_CLOSE]))) return false;
    }
    const end = (yield* input.sees(OPEN)) ? 'begun' : yield* input.closing(CLOSE);
    return args.finish(end, input.wasCut);
  },
  call: tool =>
    taggedCall(tool, {
      open: `${OPEN}${tool.name}\n`,
      valueOpen: key => `<arg_key>${key}</arg_key>\n<arg_value>`,
      valueClose: `${VALUE_CLOSE}\n`,
      forbidden: VALUE_CLOSE,
      close: CLOSE,
      looseLines: true,
    }),
  answer(call, several) {
    if (!several) return call;
    return { kind: 'repeat', item: { kind: 'sequence', parts: [call, looseLines('\n')] }, separator: '' };
  },
};
