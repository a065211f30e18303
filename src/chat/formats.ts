/** The table of chat formats, and which of them a model uses. */

import { RequestError } from '../common/errors.ts';
import type { ChatFormat } from './api.ts';
import { GLM } from './glm.ts';
import { HERMES } from './hermes.ts';
import { AnswerParser } from './parser.ts';
import { PROMPTED_JSON } from './prompted-json.ts';
import { QWEN_XML } from './qwen-xml.ts';
import { type CallSyntax, choiceOf } from './syntax.ts';

interface Row {
  readonly syntax: CallSyntax;
  /** What a chat template that teaches this syntax has in its text; no sign: the row for all others. */
  readonly sign: string | null;
}

/** The first row whose sign is there holds: GLM and Qwen write their own tags inside the tag of Hermes. */
const TABLE: readonly Row[] = [
  { syntax: QWEN_XML, sign: '<function=' },
  { syntax: GLM, sign: '<arg_key>' },
  { syntax: HERMES, sign: '<tool_call>' },
  { syntax: PROMPTED_JSON, sign: null },
];

const THINK = { open: '<think>', close: '</think>' };

/** What tells how a model talks. */
export interface FormatSigns {
  /** Source of the chat template. */
  readonly template: string | null;
  /** Spellings of the added tokens. */
  readonly addedTokens: readonly string[];
  /** Name of the family's usual format, for a template that takes tools and shows no syntax. */
  readonly familyDefault?: string;
}

/**
 * The format of a model, as its template shows it: a fine-tune may talk otherwise than its architecture's first model did. A
 * template that knows no tools gets none, whatever tokens there are: it would leave them out.
 */
export function chooseFormat({ template, addedTokens, familyDefault }: FormatSigns): ChatFormat {
  if (template === null) return formatOf(PROMPTED_JSON, null);
  const takesTools = /\btools\b/.test(template);
  const shown = TABLE.find(({ sign }) => sign !== null && template.includes(sign));
  const usual = TABLE.find(({ syntax, sign }) => syntax.name === familyDefault && hasTokens(sign, addedTokens));
  const row = takesTools ? (shown ?? usual) : undefined;
  // models that reason have the closing tag in their template, which leaves the reasoning out of earlier answers or opens it
  const reasons =
    template.includes(THINK.close) || (template.includes(THINK.open) && addedTokens.includes(THINK.close));
  return formatOf(row?.syntax ?? PROMPTED_JSON, reasons ? THINK : null);
}

/** A syntax is only believed in without a sign where the model has a token for it. */
function hasTokens(sign: string | null, addedTokens: readonly string[]): boolean {
  return sign === null || addedTokens.some(token => token.startsWith(sign) || token === '<tool_call>');
}

/** Names of all syntaxes. */
export const FORMAT_NAMES: readonly string[] = TABLE.map(({ syntax }) => syntax.name);

/** The format with a name, with or without reasoning in think tags. */
export function formatNamed(name: string, reasons: boolean): ChatFormat {
  const row = TABLE.find(({ syntax }) => syntax.name === name);
  if (!row) {
    throw new RequestError('UNKNOWN_CHAT_FORMAT', `there is no chat format ${JSON.stringify(name)}`, {
      hint: `there are ${FORMAT_NAMES.join(', ')}`,
    });
  }
  return formatOf(row.syntax, reasons ? THINK : null);
}

function formatOf(syntax: CallSyntax, reasoning: ChatFormat['reasoning']): ChatFormat {
  return {
    name: syntax.name,
    reasoning,
    templateTakesTools: syntax.templateTakesTools,
    parser: options => new AnswerParser(syntax, reasoning, options),
    forced(tools, choice, parallel) {
      const allowed = choice === 'required' ? tools : tools.filter(({ name }) => name === choice.name);
      if (allowed.length === 0) {
        const what = choice === 'required' ? 'there are no tools' : `there is no tool ${JSON.stringify(choice.name)}`;
        throw new RequestError('UNKNOWN_TOOL', `a call is required, and ${what}`, {
          hint: 'declare the tool in tools',
          details: { parameter: 'tool_choice' },
        });
      }
      return syntax.answer(choiceOf(allowed.map(tool => syntax.call(tool))), parallel && choice === 'required');
    },
  };
}
