/** The table of chat formats, and which of them a model uses. */

import { RequestError } from '../common/errors.ts';
import type { ChatFormat, FamilyChat } from './api.ts';
import { DEEPSEEK, DEEPSEEK_FENCED } from './deepseek.ts';
import { GLM } from './glm.ts';
import { HARMONY } from './harmony.ts';
import { HERMES } from './hermes.ts';
import { MINIMAX } from './minimax.ts';
import { AnswerParser } from './parser.ts';
import { PROMPTED_JSON } from './prompted-json.ts';
import { QWEN_XML } from './qwen-xml.ts';
import { type CallSyntax, choiceOf, requiredTools } from './syntax.ts';

interface Row {
  readonly syntax: CallSyntax;
  /** What a chat template that teaches this syntax has in its text, all of it. */
  readonly signs: readonly string[];
  /** Without a sign in the template a family's usual syntax is only believed in where the model has this token. */
  readonly token: string;
}

/** The first row whose signs are there holds: GLM and Qwen write their own tags inside the tag of Hermes. */
const TABLE: readonly Row[] = [
  { syntax: MINIMAX, signs: ['<minimax:tool_call>'], token: '<minimax:tool_call>' },
  { syntax: DEEPSEEK_FENCED, signs: ['<｜tool▁sep｜>', '```json'], token: '<｜tool▁sep｜>' },
  { syntax: DEEPSEEK, signs: ['<｜tool▁sep｜>'], token: '<｜tool▁sep｜>' },
  { syntax: QWEN_XML, signs: ['<function='], token: '<tool_call>' },
  { syntax: GLM, signs: ['<arg_key>'], token: '<tool_call>' },
  { syntax: HERMES, signs: ['<tool_call>'], token: '<tool_call>' },
];

const THINK = { open: '<think>', close: '</think>' };

/** What tells how a model talks. */
export interface FormatSigns {
  /** Source of the chat template. */
  readonly template: string | null;
  /** Spellings of the added tokens. */
  readonly addedTokens: readonly string[];
  /** What its family usually does. */
  readonly chat?: Pick<FamilyChat, 'format'>;
}

/**
 * The format of a model, as its template shows it: a fine-tune may talk otherwise than its architecture's first model did. A
 * template that knows no tools gets none, whatever tokens there are: it would leave them out.
 */
export function chooseFormat({ template, addedTokens, chat }: FormatSigns): ChatFormat {
  if (template === null) return formatOf(PROMPTED_JSON, null);
  const takesTools = /\btools\b/.test(template);
  // its channels are there with and without tools
  const isHarmony = HARMONY.markers.slice(0, 4).every(marker => addedTokens.includes(marker));
  const shows = (sign: string) => template.includes(sign);
  if (isHarmony && (chat?.format === HARMONY.name || shows('<|channel|>'))) {
    return { ...HARMONY, templateTakesTools: takesTools || null, readsThinking: /\.thinking\b/.test(template) };
  }
  const shown = TABLE.find(({ signs }) => signs.every(shows));
  const usual = TABLE.find(({ syntax, token }) => syntax.name === chat?.format && addedTokens.includes(token));
  const row = takesTools ? (shown ?? usual) : undefined;
  // models that reason have the closing tag in their template, which leaves the reasoning out of earlier answers or opens it
  const reasons = shows(THINK.close) || (shows(THINK.open) && addedTokens.includes(THINK.close));
  return formatOf(row?.syntax ?? PROMPTED_JSON, reasons ? THINK : null);
}

const SYNTAXES: readonly CallSyntax[] = [...TABLE.map(({ syntax }) => syntax), PROMPTED_JSON];

/** Names of the formats in which calls and reasoning stand between tags, wherever they are. */
export const TAGGED_FORMATS: readonly string[] = SYNTAXES.map(({ name }) => name);

/** Names of all formats. */
export const FORMAT_NAMES: readonly string[] = [...TAGGED_FORMATS, HARMONY.name];

/** The format with a name, with or without reasoning in think tags; some always reason in their own way. */
export function formatNamed(name: string, reasons: boolean): ChatFormat {
  if (name === HARMONY.name) return HARMONY;
  const syntax = SYNTAXES.find(each => each.name === name);
  if (syntax) return formatOf(syntax, reasons ? THINK : null);
  throw new RequestError('UNKNOWN_CHAT_FORMAT', `there is no chat format ${JSON.stringify(name)}`, {
    hint: `there are ${FORMAT_NAMES.join(', ')}`,
  });
}

function formatOf(syntax: CallSyntax, reasoning: ChatFormat['reasoning']): ChatFormat {
  return {
    name: syntax.name,
    markers: [...syntax.markers, ...(reasoning ? [reasoning.open, reasoning.close] : [])],
    partMarker: null,
    reasoning,
    templateTakesTools: syntax.templateTakesTools,
    parser: options => new AnswerParser(syntax, reasoning, options),
    forced(tools, choice, parallel) {
      const calls = requiredTools(tools, choice).map(tool => syntax.call(tool));
      return syntax.answer(choiceOf(calls), parallel && choice === 'required');
    },
    held: text => text,
  };
}
